"""A packet's whole way over the hosts of a cluster, and the way of what comes back.

On each host the data-plane model says what its rules do. `wire` says where a packet goes when it leaves: what is the
same everywhere is there (links that are down, tunnels by their neighbours and FDB), what depends on the source of
knowledge is a `Network`: the lab's knows its bridges and cables from the kernel, `known` takes a snapshot. `path`
walks: where rules choose by chance there are several journeys, whose probabilities add up to 1.
"""
