"""IPVS mode: virtual servers, ipsets, addresses on `kube-ipvs0` and the iptables rules beside them."""
