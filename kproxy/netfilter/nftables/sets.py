"""Named sets and maps."""

from __future__ import annotations

from dataclasses import dataclass, field

from kproxy.netfilter.nftables.datatype import DataType
from kproxy.netfilter.nftables.element import NO_ELEMENTS, Elements
from kproxy.netfilter.nftables.expression import Expression
from kproxy.netfilter.nftables.stateful import Stateful


@dataclass(frozen=True, slots=True)
class Set:
    """A set, or, when it has `data_types` or `object_kind`, a map.

    `types` are the data types of the key's parts, more than one for a concatenation, and so `data_types` for a map's
    data (`verdict` in a verdict map). A map of objects names their kind (`counter`, `quota`, ...) and holds their
    names. Sets declared with `typeof` keep the expressions in `key_of` and `data_of`. `flags` are constant, interval,
    timeout, dynamic. `timeout` (for elements without one of their own) and `gc_interval` are in milliseconds; `size` is
    the most elements, None for the kernel's default; `policy` memory or None. `stateful` is what every new element
    gets. `elements` are in the order of the text, which does not count in comparisons.
    """

    name: str
    types: tuple[DataType, ...]
    data_types: tuple[DataType, ...] = ()
    object_kind: str | None = None
    key_of: Expression | None = None
    data_of: Expression | None = None
    data_interval: bool = False
    flags: frozenset[str] = frozenset()
    timeout: int | None = None
    gc_interval: int | None = None
    size: int | None = None
    policy: str | None = None
    auto_merge: bool = False
    comment: str | None = None
    stateful: tuple[Stateful, ...] = ()
    elements: Elements = NO_ELEMENTS
    handle: int | None = field(default=None, compare=False)
    line: int = field(default=0, compare=False)

    @property
    def is_map(self) -> bool:
        """Whether it is a map."""
        return bool(self.data_types) or self.object_kind is not None

    @property
    def is_verdict_map(self) -> bool:
        """Whether its data are verdicts."""
        return len(self.data_types) == 1 and self.data_types[0].name == "verdict"
