"""Limits of the model that the concrete and the symbolic evaluation share."""

from __future__ import annotations

from typing import Final

MAX_CHOICES: Final = 64
"""Up to so many addresses or ports that a NAT target chooses from are told apart; of more, the choice is unknown."""
