"""Where the explorer's cluster comes from: files, an API server, a lab; and the rules that are made from objects."""
