"""`kproxy-cni`: the CNI plugin. `plugin` serves one request, `main` is the executable, `server` serves many."""
