"""HTTP server of the service: API, metrics and dashboard. `server.serving` starts it."""
