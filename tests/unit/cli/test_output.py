"""Tables: one line a row where they fit, a block a row on a narrow terminal."""

from __future__ import annotations

from kproxy.cli.output import table_lines

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
