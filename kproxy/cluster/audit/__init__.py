"""What is wrong in a cluster, on which nodes, and by which rule: `kproxy audit` (docs/audit.md).

node         a node's configuration, its rules, and its host
states       the Services as each node sees them
dump         a dump of iptables, cut into chains
expected_actual    the rules that a node should have beside those that it has
question_sampling  which Service ports rules treat alike
questions    packets of the clients of each Service port and address
judge        asking both rule sets, and what a difference is
hosts        sysctls, routes, connections, leftovers: plain facts
underlay     the ways to other nodes: routes, tunnels, MTU
proxies      what kube-proxies tell, and how they fit one another and the Pods
finding_kinds  the kinds of findings: a table
report       observations grouped to findings
audit        all of it
"""
