"""`kproxy audit` finds in a redacted snapshot what it finds in the snapshot: the same kinds, on the same nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from kproxy.cluster.audit.audit import audit
from kproxy.cluster.audit.report import AuditReport
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.collect.redact.redact import redact_snapshot
from tests.support.cluster import audited

KEY = bytes(range(32))


def findings(
    report: AuditReport, names: Mapping[str, Mapping[str, str]]
) -> list[tuple[str, list[str], list[str], int]]:
    """Kinds, nodes, Services and numbers of rules, by the new names."""

    def service(text: str) -> str:
        namespace, name, port = re.split("[/:]", text)
        parts = (("ns", namespace), ("svc", name), ("port", port))
        new = [names.get(kind, {}).get(part, part) for kind, part in parts]
        return f"{new[0]}/{new[1]}:{new[2]}"

    nodes = names.get("node", {})
    return sorted(
        (each.kind, sorted(nodes.get(node, node) for node in each.nodes), sorted(map(service, each.services)),
         len(each.rules))
        for each in report.findings
    )  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "path", "pattern", "text"),
    [
        ("iptables", "nodes/n1/iptables-save", r"--to-destination 10.244.2.5:", "--to-destination 10.244.2.99:"),
        (
            "iptables", "nodes/n2/iptables-save", r"(?s)^(\*filter\n.*?)^-A KUBE-FORWARD ",
            r"\g<1>-A KUBE-FORWARD -d 10.244.1.5/32 -p tcp -j REJECT\n-A KUBE-FORWARD ",
        ),
        ("nftables", "nodes/n1/sysctl", r"^net.ipv4.ip_forward = 1", "net.ipv4.ip_forward = 0"),
    ],
    ids=["stale endpoint", "foreign rule", "forwarding off"],
)  # fmt: skip
def test_the_findings_are_the_same(mode: str, path: str, pattern: str, text: str) -> None:
    files = audited.cluster(mode)
    changed, count = re.subn(pattern, text, files[path].decode(), count=1, flags=re.MULTILINE)
    assert count == 1
    files[path] = changed.encode()
    told: list[str] = []
    redacted = redact_snapshot(MemoryFiles("S", files), KEY, told.append)
    before = audit(Cluster(MemoryFiles("S", files)))
    after = audit(Cluster(redacted.files))
    assert told == []
    assert before.findings
    assert findings(before, redacted.replaced) == findings(after, {})
