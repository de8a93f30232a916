"""A packet and its host in scratch namespaces, with rules loaded: what the kernel does to it.

`confirm.Kernels` sends the witnesses of `dataplane.compare` through two rule sets, each in a namespace of its own.
"""
