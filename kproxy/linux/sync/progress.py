"""How operations tell how far they are, and how they went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Progress = Callable[[str, int, int], None]
"""Called with what is going on, and how many steps of how many are done."""

APPLIED: Final = "applied"
NOTHING: Final = "nothing to do"
WOULD_CHANGE: Final = "would change"
