"""One file per resource of the HTTP API."""
