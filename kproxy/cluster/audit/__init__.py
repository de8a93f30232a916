"""What is wrong in a cluster, on which nodes, and by which rule: `kproxy audit` (docs/audit.md).

node         a node's configuration, the rules it should have and those it has, and its host
questions    packets of the clients of each Service port and address
judge        asking both rule sets, and what a difference is
hosts        sysctls, routes, connections, leftovers: plain facts
proxies      what kube-proxies tell, and how they fit one another and the Pods
kinds        the kinds of findings: a table
report       observations grouped to findings
audit        all of it
"""

from kproxy.cluster.audit.audit import audit
from kproxy.cluster.audit.kinds import KINDS, Severity
from kproxy.cluster.audit.observation import BlamedRule, Observation, Witness
from kproxy.cluster.audit.report import Finding, Gap, Report

__all__ = ["KINDS", "BlamedRule", "Finding", "Gap", "Observation", "Report", "Severity", "Witness", "audit"]
