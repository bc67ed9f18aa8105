"""Where clients get their views of partition modes from: sources, the cache over them, and who shares them."""
