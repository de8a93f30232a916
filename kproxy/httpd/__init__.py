"""A small HTTP server for short responses: `listener` has the ports and the thread, `protocol` one connection."""
