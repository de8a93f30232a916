"""What IPVS has, as values, and the texts of ipvsadm and ipset."""
