"""Views of partition modes: the sources that clients get them from, the cache over the sources, and the sharing of
both."""
