"""What someone with a pager watches: a controller's metrics, its health and its status page, over HTTP, read-only."""
