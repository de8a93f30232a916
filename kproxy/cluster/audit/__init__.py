"""What is wrong in a cluster, on which nodes, and by which rule: `kproxy audit` (docs/audit.md)."""
