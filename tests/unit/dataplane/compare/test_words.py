"""How differences read: what usual packets meet first, at addresses that people know."""

from __future__ import annotations

import pytest

from kproxy.dataplane.compare.compare import Comparison, compare
from kproxy.dataplane.model.host import Host
from kproxy.dataplane.model.hostfile import parse_host
from kproxy.netfilter import Family, Ruleset, parse_save
from kproxy.netfilter.address import format_address
from tests.support.cluster.snapshots import damaged_files, vxlan_cluster

HOST = parse_host({
    "interfaces": [
        {"name": "lo", "addresses": ["127.0.0.1/8"]},
        {"name": "eth0", "addresses": ["172.30.0.11/24"]},
        {"name": "cni0", "addresses": ["10.244.1.1/24"]},
    ]
})  # fmt: skip


def node(files: dict[str, bytes]) -> Ruleset:
    return parse_save(files["nodes/n1/iptables-save"].decode(), family=Family.IPV4)


def of_damage(host: Host | None) -> Comparison:
    """An endpoint of a Service with a node port is another."""
    return compare(node(vxlan_cluster()), node(damaged_files()), host=host, examine=None)


def witnesses(found: Comparison) -> dict[str, str]:
    """The address that each difference's witness is sent to, by its first place."""
    packets = [(each.destinations[0], each.witness.packet.dst) for each in found.differences]
    return {place: format_address(dst, Family.IPV4) for place, dst in packets if dst is not None}


def test_what_usual_packets_meet_comes_first() -> None:
    found = of_damage(None).differences
    assert found[0].destinations == ("10.96.0.7:80/tcp", "port 30080/tcp of 127.0.0.0/8")
    assert found[1].destinations[0] == "port 30080/tcp of any other address of this host"
    assert [each.rank for each in found] == sorted(each.rank for each in found)
    assert "in state RELATED" in found[-1].conditions


def test_a_witness_goes_to_an_address_that_the_host_is_known_by() -> None:
    shown = witnesses(of_damage(HOST))
    assert set(shown.values()) <= {"10.96.0.7", "172.30.0.11", "10.244.1.5", "10.244.2.5", "10.244.2.77", "127.0.0.1"}
    assert "172.30.0.11" in shown.values()


def test_a_witness_that_must_go_to_loopback_goes_to_its_first_address() -> None:
    def rules(target: str) -> Ruleset:
        text = f"*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -d 127.0.0.0/8 -p tcp --dport 22 -j {target}\nCOMMIT\n"
        return parse_save(text, family=Family.IPV4)

    found = compare(rules("DROP"), rules("ACCEPT"))
    assert set(witnesses(found)) == {"port 22/tcp of 127.0.0.0/8"}
    assert set(witnesses(found).values()) == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("DROP", "drops it"),
        ("REJECT", "rejects it (icmp-port-unreachable)"),
        ("ACCEPT", "sends all to 192.0.2.1:22 (source as it is)"),
    ],
)
def test_what_a_side_does_is_said_plainly(target: str, words: str) -> None:
    other = "DROP" if target != "DROP" else "ACCEPT"
    text = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -d 192.0.2.1/32 -p tcp --dport 22 -j {}\nCOMMIT\n"
    one, two = (parse_save(text.format(each), family=Family.IPV4) for each in (target, other))
    assert {each.one for each in compare(one, two).differences} == {words}


def test_parts_are_said_together() -> None:
    chance = "-A FORWARD -d 192.0.2.1/32 -m statistic --mode random --probability 0.5 -j {}\n"
    text = "*filter\n:FORWARD ACCEPT [0:0]\n{}COMMIT\n"
    one = parse_save(text.format(chance.format("DROP") + chance.format("REJECT")), family=Family.IPV4)
    other = parse_save(text.format(""), family=Family.IPV4)
    assert {each.one for each in compare(one, other).differences} == {
        "drops 1/2, rejects 1/4 (icmp-port-unreachable) and sends 1/4 to 192.0.2.1:8000"
    }


def test_many_destinations_of_the_same_share_are_told_once() -> None:
    """kube-proxy's chances are rounded, so that they are not quite the same."""

    def rules(count: int) -> Ruleset:
        lines = [
            f"-A S -m statistic --mode random --probability {1 / (count - place):.11f} -j E{place}\n"
            for place in range(count - 1)
        ]
        lines += [f"-A S -j E{count - 1}\n"]
        lines += [f"-A E{place} -p tcp -j DNAT --to-destination 10.0.0.{place}:80\n" for place in range(count)]
        chains = "".join(f":{name} - [0:0]\n" for name in ("S", *(f"E{place}" for place in range(count))))
        text = (
            f"*nat\n:PREROUTING ACCEPT [0:0]\n{chains}-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j S\n"
            f"{''.join(lines)}COMMIT\n"
        )
        return parse_save(text, family=Family.IPV4)

    (found,) = compare(rules(7), rules(3)).differences
    assert found.one == "sends 1/7 each to 10.0.0.0:80, 10.0.0.1:80, 10.0.0.2:80, 10.0.0.3:80 and 3 more"
    assert found.other == "sends 1/3 to 10.0.0.0:80, 1/3 to 10.0.0.1:80 and 1/3 to 10.0.0.2:80"
