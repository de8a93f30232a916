"""Tables: one line a row where they fit, a block a row on a narrow terminal; lines are folded, rules are not."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from kproxy.cli.output import folded, table_lines
from tests.support import paths
from tests.support.cli import Run

EXAMPLES = paths.ROOT / "docs/examples"
RULES = EXAMPLES / "worker-1.save"
EXPLAIN = ("explain", "-f", EXAMPLES / "shop.yaml", "--node", "worker-1", "--service", "shop/web")

ROWS = [
    ("CLIENT", "ADDRESS", "SEEN", ""),
    ("outside: client", "nodePort of node-1 172.30.0.11:32581/tcp", "2 pods see 10.244.1.1, lost 12 of 30", "="),
    ("node-1", "clusterIP 10.96.0.9:80/tcp", "", "DIFFERS"),
]


def test_a_table_that_fits_or_is_no_terminals() -> None:
    for width in (None, 120):
        lines = list(table_lines(ROWS, "  ", width))
        assert len(lines) == 3
        assert lines[0].startswith("  CLIENT           ADDRESS")
        assert lines[2].endswith("  DIFFERS")
        assert lines == [line.rstrip() for line in lines]


def test_a_table_on_a_narrow_terminal() -> None:
    assert list(table_lines(ROWS, "  ", 50)) == [
        "  outside: client",
        "    address  nodePort of node-1",
        "             172.30.0.11:32581/tcp",
        "    seen     2 pods see 10.244.1.1, lost 12 of 30",
        "             =",
        "  node-1",
        "    address  clusterIP 10.96.0.9:80/tcp",
        "             DIFFERS",
    ]


def test_lines_are_folded_on_a_terminal() -> None:
    text = "   for example tcp 198.51.100.7:40000 → 203.0.113.9:8000, arriving on eth0"
    lines = [text, "│  ├─ a rule of a tree, with a comment that goes on", "│  └─ " + "x" * 50, "", "short"]
    assert list(folded(lines, None)) == lines
    assert list(folded(lines, 40)) == [
        "   for example tcp 198.51.100.7:40000 →",
        "       203.0.113.9:8000, arriving on",
        "       eth0",
        "│  ├─ a rule of a tree, with a comment",
        "│  │      that goes on",
        "│  └─ " + "x" * 50,
        "",
        "short",
    ]


def test_colours_take_no_columns() -> None:
    line = f"   {click.style('A', bold=True)} sends all to {click.style('10.0.0.1', fg='red')}, as it is"
    assert list(folded([line], 40)) == [line]
    assert [click.unstyle(part) for part in folded([line], 30)] == ["   A sends all to 10.0.0.1, as", "       it is"]


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        (("trace", "--rules", RULES, "--src", "10.244.1.21", "--dst", "10.96.0.10:53", "--proto", "udp"), "-A "),
        (EXPLAIN, "-A "),
        ((*EXPLAIN, "--mode", "nftables"), "add "),
        (("diff", RULES, "changed.save"), "-A "),
    ],
)
def test_rules_stay_whole_on_a_narrow_terminal(
    kproxy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str | Path, ...], starts: str
) -> None:
    changed = RULES.read_text().replace("--to-destination 10.244.1.11:8080", "--to-destination 10.244.1.11:8081")
    (tmp_path / "changed.save").write_text(changed)
    monkeypatch.chdir(tmp_path)
    whole = kproxy(*command).stdout.splitlines()
    rules = [line for line in whole if starts in line]
    assert max(map(len, rules)) > 100
    monkeypatch.setenv("COLUMNS", "80")
    lines = kproxy(*command).stdout.splitlines()
    assert [line for line in lines if starts in line] == rules
    assert [line for line in lines if starts not in line and len(line) > 80 and " " in line.strip("│├└─ ")] == []
