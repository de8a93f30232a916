"""The local server: who may ask, the API over HTTP, listening."""
