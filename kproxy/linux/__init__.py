"""The only package that touches the kernel: namespaces, iptables, conntrack, sysctls, netlink."""
