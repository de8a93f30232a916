"""The kernel agrees about -m ecn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pytest

from kproxy.dataplane import Host, Index, index_ruleset, trace
from kproxy.netfilter import Family, canonical_ruleset
from tests.support.kernel.dataplane_agree import Bench, Tally
from tests.support.kernel.dataplane_rules import Packets
from tests.support.kernel.dataplane_runs import loaded, node_with_sets
from tests.support.kernel.dataplane_wire import Node, Probe

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def plain() -> Iterator[tuple[Node, Host]]:
    with node_with_sets(f"ha{os.getpid() % 1000}") as found:
        yield found


ECN = ("--ecn-tcp-cwr", "! --ecn-tcp-ece", "--ecn-tcp-ece ! --ecn-tcp-cwr", "--ecn-ip-ect 2", "! --ecn-ip-ect 0",
       "--ecn-tcp-ece ! --ecn-ip-ect 0")  # fmt: skip


def probes(family: Family, count: int = 24, protocol: str = "udp") -> list[Probe]:
    random = Random(21)
    packets = Packets(random, family)
    outside, far = ("198.51.100.", "10.244.1.9") if family is Family.IPV4 else ("2001:db8:9::", "fd00:245::5")
    return [packets.packet("o0", f"{outside}{random.randrange(1, 250)}", far, 80, protocol) for _ in range(count)]


def agree(node: Node, index: Index, host: Host, sent: list[Probe], name: str) -> None:
    tally = Tally()
    found = {trace(index, host, probe.packet).outcomes[0].verdict for probe in sent}
    Bench(node, index, host, tally, name).compare(sent, replies=False)
    assert not tally.disagreements, "\n".join(tally.disagreements[:3])
    assert tally.open == 0
    assert len(found) == 2


@pytest.mark.parametrize("family", list(Family), ids=lambda family: f"v{family.version}")
@pytest.mark.parametrize("options", ECN)
def test_ecn(plain: tuple[Node, Host], options: str, family: Family) -> None:
    forwarded(plain, f"-p tcp -m ecn {options}", family, probes(family, protocol="tcp"))


def test_ecn_that_is_removed(plain: tuple[Node, Host]) -> None:
    before = "*mangle\n-A PREROUTING -p tcp -m ecn --ecn-tcp-cwr -j ECN --ecn-tcp-remove\nCOMMIT\n"
    forwarded(plain, "-p tcp -m ecn --ecn-tcp-ece", Family.IPV4, probes(Family.IPV4, protocol="tcp"), before)


def forwarded(plain: tuple[Node, Host], match: str, family: Family, sent: list[Probe], before: str = "") -> None:
    """Packets to be forwarded, past a rule that drops those that a match holds for."""
    node, host = plain
    text = f"{before}*filter\n-A FORWARD {match} -j DROP\nCOMMIT\n"
    index = index_ruleset(canonical_ruleset(text, family), variant="legacy")
    with loaded(node, text, family, "legacy"):
        agree(node, index, host, sent, match)
