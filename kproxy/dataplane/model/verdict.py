"""How a packet's way on a host may end, in one packet's trace as in the comparison of all packets."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class FinalVerdict(StrEnum):
    """What becomes of a packet."""

    ACCEPT = "ACCEPT"
    DROP = "DROP"
    REJECT = "REJECT"
    INDETERMINATE = "INDETERMINATE"
    """It depends on something that is unknown."""


ACCEPT: Final = FinalVerdict.ACCEPT
DROP: Final = FinalVerdict.DROP
REJECT: Final = FinalVerdict.REJECT
INDETERMINATE: Final = FinalVerdict.INDETERMINATE
