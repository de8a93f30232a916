"""The pod network as values: what a node's kernel should hold, and what a CNI request asks for.

    CNI environment + configuration ─> request ─> ipam ─> attach (a plan) ─> result
    Node objects ─> nodes ─> plan (links, addresses, routes, neighbours, FDB entries, sysctls) ─> difference

Nothing here opens a socket or a file or runs a process; `kproxy.linux` carries plans out. The modules that the CNI
plugin imports need only the standard library, because it may be started once per pod: msgspec would cost it 20 ms.
docs/cni.md is the user's page.
"""
