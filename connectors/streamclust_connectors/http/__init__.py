"""The HTTP side of the service: an API, metrics, and the dashboard's page. See `server.serving`, which starts it."""
