"""Cluster DNS: what CoreDNS's kubernetes plugin answers, from a small server of our own."""
