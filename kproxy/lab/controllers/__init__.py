"""The controllers of a lab: enough of kube-controller-manager and kube-scheduler for Deployments, Services and
Nodes."""
