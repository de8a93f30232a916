"""Two states compared for every packet, and what differs as findings."""
