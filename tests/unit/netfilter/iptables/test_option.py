"""The machinery by which matches and targets read and write themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import number
from kproxy.netfilter.iptables.matches import MATCH_CLASSES, Match
from kproxy.netfilter.iptables.option import Extension, Negatable, Option
from kproxy.netfilter.iptables.targets import TARGET_CLASSES


@dataclass(frozen=True, slots=True)
class Example(Match):
    size: Negatable[int]
    kind: str | None = None
    flag: bool = False
    tri: bool | None = None
    burst: int = 5

    NAME: ClassVar[str] = "example"
    SOME: ClassVar[tuple[str, ...]] = ("size", "kind")
    EXCLUSIVE: ClassVar[tuple[tuple[str, ...], ...]] = (("flag", "tri"),)
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--size", "size", number(), negatable=True, aliases=("--sz",)),
        Option("--red", "kind", constant="red"),
        Option("--blue", "kind", constant="blue"),
        Option("--flag", "flag"),
        Option("--tri", "tri", negatable=True),
        Option("--burst", "burst", number(), omit=5),
        Option("--tiny", "size", constant=1, negatable=True, printed=False),
    )


def test_rows_write() -> None:
    assert Example(Negatable(3)).to_save() == "-m example --size 3"
    full = Example(Negatable(3, True), "blue", True, False, 6)
    assert full.to_save() == "-m example ! --size 3 --blue --flag ! --tri --burst 6"
    assert Example(Negatable(1), tri=True).option_text() == "--size 1 --tri"


def test_rows_read() -> None:
    rows = Example.options()
    assert rows["--sz"] is rows["--size"]
    assert rows["--size"].read(True, ["7"], Family.IPV4) == Negatable(7, True)
    assert rows["--tiny"].read(False, [], Family.IPV4) == Negatable(1)
    assert rows["--blue"].read(False, [], Family.IPV4) == "blue"
    assert rows["--tri"].read(True, [], Family.IPV4) is False
    for name in ("--blue", "--flag", "--burst"):
        with pytest.raises(ValueError, match="no ! expected"):
            rows[name].read(True, ["1"], Family.IPV4)


def test_build() -> None:
    assert Example.build({"size": Negatable(1)}, Family.IPV4) == Example(Negatable(1))
    with pytest.raises(ValueError, match="--size expected"):
        Example.build({"kind": "red"}, Family.IPV4)


def test_what_a_class_asks_of_its_fields() -> None:
    assert Example.build({"size": Negatable(1), "tri": False, "burst": 5}, Family.IPV4) == Example(
        Negatable(1), tri=False
    )
    with pytest.raises(ValueError, match="one of these expected: --size, --red, --blue"):
        Example.build({"flag": False}, Family.IPV4)
    with pytest.raises(ValueError, match="only one of these expected: --flag, --tri"):
        Example.build({"size": Negatable(1), "flag": True, "tri": False}, Family.IPV4)


@pytest.mark.parametrize("cls", [*MATCH_CLASSES, *TARGET_CLASSES], ids=lambda cls: cls.__name__)
def test_tables_are_sound(cls: type[Extension]) -> None:
    """Every field is printed by a row, names are unique, and the class says what it is for."""
    printed = {row.field for row in cls.OPTIONS if row.printed}
    assert {field for field, _ in cls.writers()} == printed
    names = [name for row in cls.OPTIONS for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))
    assert all(name.startswith("--") for name in names)
    assert cls.__doc__
    assert "(" not in cls.__doc__[:1]
