"""What the data-plane model says of a packet's whole way, over all hosts of a lab."""
