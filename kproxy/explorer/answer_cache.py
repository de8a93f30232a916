"""What takes long to make, kept for who asks the same again: copies, maps as they are sent, of some MB, and rules."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

MAX_KEPT: Final = 4
"""Of what is large."""

Made = TypeVar("Made")


class AnswerCache(Generic[Made]):
    """What was made by what was asked; those that were asked for last are kept. Thread-safe: who wants what somebody
    else makes waits for it."""

    def __init__(self, most: int = sys.maxsize) -> None:
        """`most`: how many are kept."""
        self._most = most
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}
        self._known: OrderedDict[Hashable, Made] = OrderedDict()

    def get(
        self, key: Hashable, make: Callable[[], Made], is_final: Callable[[Made], bool] = lambda _made: True
    ) -> Made:
        """What is known, or is made; what `make` raises goes on. `is_final`: whether it is to be kept."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                found = self._known.get(key)
                if found is not None:
                    self._known.move_to_end(key)
                    return found
            found = make()
            if is_final(found):
                with self._lock:
                    self._known[key] = found
                    while len(self._known) > self._most:
                        self._known.popitem(last=False)
            return found
