"""What changes for packets when kube-proxy's mode is switched: `kproxy migrate` (docs/migrate.md)."""
