"""Base rules: what is there whatever the cluster holds."""

from __future__ import annotations

import pytest

from kproxy.render import RenderOptions
from kproxy.render.iptables.base import JUMP_RULES, jump_origins, render_base_rules
from kproxy.render.iptables.save import jump_text, saved_ruleset
from kproxy.services import IPFamily, NodePortAddresses

V4, V6 = IPFamily.IPV4, IPFamily.IPV6


def test_every_line_has_an_origin() -> None:
    for options in (RenderOptions(), RenderOptions(family=V6, localhost_node_ports=False, drop_invalid=False)):
        base = render_base_rules(options)
        for place, text in base.chains.items():
            assert text.count("\n") == len(base.origins[place])
        assert base.node_ports_jump.count("\n") == len(base.origins[("nat", "KUBE-SERVICES")])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (RenderOptions(), ["-m addrtype --dst-type LOCAL -j"]),
        (RenderOptions(localhost_node_ports=False), ["--dst-type LOCAL ! -d 127.0.0.0/8 -j"]),
        (RenderOptions(family=V6, localhost_node_ports=False), ["--dst-type LOCAL ! -d ::1/128 -j"]),
        (
            RenderOptions(
                node_port_addresses=NodePortAddresses(False, ("127.0.0.0/8", "192.168.0.0/24")),
                interface_addresses=("127.0.0.1", "192.168.0.2", "10.0.0.1"),
            ),
            ["-d 127.0.0.1 -j", "-d 192.168.0.2 -j"],
        ),
        (
            RenderOptions(
                node_port_addresses=NodePortAddresses(False, ("127.0.0.0/8",)),
                interface_addresses=("127.0.0.1",),
                localhost_node_ports=False,
            ),
            [],
        ),
    ],
)
def test_how_kube_services_ends(options: RenderOptions, words: list[str]) -> None:
    lines = render_base_rules(options).node_ports_jump.splitlines()
    assert len(lines) == len(words)
    for line, wanted in zip(lines, words, strict=True):
        assert wanted in line
        assert line.endswith("-j KUBE-NODEPORTS")


def test_jump_rules_stand_where_kube_proxy_prepends_them() -> None:
    """Prepending one after the other gives the order of the text that loads them all at once."""
    prepended: dict[tuple[str, str], list[str]] = {}
    for jump in JUMP_RULES:
        prepended.setdefault((jump.table, jump.source), []).insert(0, jump.text)
    appended: dict[tuple[str, str], list[str]] = {}
    table = ""
    for line in jump_text().splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith("-A"):
            appended.setdefault((table, line.split()[1]), []).append(line)
    assert appended == prepended
    assert {place: len(lines) for place, lines in prepended.items()} == {
        place: len(origins) for place, origins in jump_origins().items()
    }


def test_canaries_stand_in_three_tables() -> None:
    ruleset = saved_ruleset("", V4)
    assert [table.name for table in ruleset.tables] == ["mangle", "filter", "nat"]
    assert all(table.chain("KUBE-PROXY-CANARY") is not None for table in ruleset.tables)
