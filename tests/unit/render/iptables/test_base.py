"""Base rules: what is there whatever the cluster holds."""

from __future__ import annotations

from kproxy.render.iptables.base import JUMP_RULES, jump_origins
from kproxy.render.iptables.save import jump_text


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
