"""Making snapshots: objects from an API server, and each node by a script that is executed there.

`objects` lists and prunes. `nodes` executes the script on all nodes at once and keeps what came; a `Runner` says where:
in a network namespace (`netns`), for one. `collect` puts both together. A node that fails is named in the snapshot,
and the rest is kept.
"""
