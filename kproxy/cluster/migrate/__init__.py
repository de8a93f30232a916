"""What changes for packets when kube-proxy's mode is switched: the comparison of both modes for a cluster.

reasons    the known differences: one row each, with what to say and what to do
packets    candidates that should show each of them
witness    sending these through both modes' rules
steps      taking known differences out of the rules, so that what is left can be compared completely
analysis   all of it, for one node and family
report     findings of all nodes and families, grouped
"""
