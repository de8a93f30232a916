"""What a listing shows, the nft release whose layout it has, and what printing has to know of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kproxy.netfilter.nftables.datatype import DataType


@dataclass(frozen=True, slots=True)
class Style:
    """How to print: `handles` as `nft -a`, `stateless` as `nft -s` (no counts, no times left). `release` is nft's
    version: the layout is known for 1.0.6 (Debian 12) and 1.1.3 (Debian 13), and changes at the latter."""

    release: tuple[int, int, int] = (1, 0, 6)
    handles: bool = False
    stateless: bool = False

    @property
    def newer(self) -> bool:
        """Whether the layout is that of 1.1.3."""
        return self.release >= (1, 1, 0)


BOOKWORM: Final = Style()
"""nft 1.0.6, of Debian 12."""

TRIXIE: Final = Style((1, 1, 3))
"""nft 1.1.3, of Debian 13."""


class Scope:
    """Where something is printed. `family` is that of the table, which decides what goes without saying ("": none);
    `data_types` gives the data types of one of its maps by name, () where they are not known."""

    __slots__ = ("data_types", "family", "newer", "stateless", "style")

    def __init__(
        self,
        style: Style = BOOKWORM,
        family: str = "",
        data_types: Callable[[str], Sequence[DataType]] = lambda name: (),
    ) -> None:
        self.style = style
        self.newer = style.newer
        self.stateless = style.stateless
        self.family = family
        self.data_types = data_types
