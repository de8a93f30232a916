"""A lab as a network for journeys: its hosts, read from the kernel, and what is between them."""
