"""Views of partition modes: the sources of clients' views, the cache over them, and the sharing of both."""
