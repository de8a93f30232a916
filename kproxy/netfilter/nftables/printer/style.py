"""What a listing shows, and the nft release whose layout it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


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
