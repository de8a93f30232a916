"""The concrete evaluation of nftables: values, sets, expressions, statements, and the traversal of base chains."""
