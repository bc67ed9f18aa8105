"""A controller's metrics, health and status page, over HTTP and read-only."""
