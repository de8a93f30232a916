"""The kubelet of a lab's node: pods become network namespaces by the CNI plugin, and their ports echo servers."""
