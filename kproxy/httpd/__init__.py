"""A small HTTP server for the agent's ports, over asyncio alone."""
