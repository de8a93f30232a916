"""Making snapshots: objects from an API server, and each node by a script that is executed there.

`objects` lists and prunes. `nodes` reads all nodes at once and keeps what came; a `NodeReader` says how: by the script
in a network namespace (`netns`) or in a Pod (`exec`), or by asking the node's own `kproxy run`, which executes it
(`agent`).
`collect` puts both together. A node that fails is named in the snapshot, and the rest is kept. `redact` replaces names
and addresses, `write` writes a directory or an archive.
"""
