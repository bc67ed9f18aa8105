"""Views of partition modes: their sources, the store of the views in force, and the sharing among clients."""
