"""Dumps of which something was not seen, and the whole one of the documentation."""

from __future__ import annotations

import re

from tests.support import paths

WHOLE = (paths.ROOT / "docs/examples/worker-1.save").read_text()


def table(name: str, text: str = WHOLE) -> str:
    found = re.search(rf"^\*{name}\n.*?^COMMIT\n", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0]


NAT, FILTER = table("nat"), table("filter")
UNLED = re.sub(r"^-A (PREROUTING|OUTPUT|POSTROUTING) .*\n", "", NAT, flags=re.MULTILINE)
PIECES = """*nat
:KUBE-SVC-A - [0:0]
:KUBE-SEP-A - [0:0]
-A KUBE-SVC-A -j KUBE-SEP-A
-A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination 10.244.1.2:53
COMMIT
"""
EMPTY = re.sub(r"^-A KUBE-SVC-TCOU.*\n", "", WHOLE, flags=re.MULTILINE)
IPVS = """*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:OUTPUT ACCEPT [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT
COMMIT
*filter
COMMIT
"""
NATIVE = """table ip kube-proxy {
  map service-ips {
    type ipv4_addr . inet_proto . inet_service : verdict
    elements = { 10.96.0.10 . udp . 53 : goto s }
  }
  chain s { meta l4proto udp dnat ip to 10.244.1.2:53 }
  chain services { ip daddr . meta l4proto . th dport vmap @service-ips }
}
"""
MANAGED = """# Warning: table ip nat is managed by iptables-nft, do not touch!
table ip nat {
  chain PREROUTING {
    type nat hook prerouting priority dstnat; policy accept;
# Warning: XT target DNAT not found
    ip daddr 10.96.0.10 counter packets 0 bytes 0 xt target "DNAT"
  }
}
"""
LEGACY_TOO = WHOLE + "# Warning: iptables-legacy tables present, use iptables-legacy-save to see them\n"
NO_RAW = WHOLE + "# Table `raw' is incompatible, use 'nft' tool.\n"
