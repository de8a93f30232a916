"""Sets and maps made ready for look-ups: a map of thousands of services costs a look-up, not a search.

Exact elements are in a dictionary. The others are filed by their shape: which parts are exact, which are prefixes of
which length, which are ranges. Of each shape the exact parts and prefixes make the key of a dictionary; ranges alone
are sorted. So a look-up asks once for each shape, of which there are few.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from kproxy.dataplane.concrete.nft.values import Value, fits, is_known
from kproxy.netfilter.nftables.element import Element
from kproxy.netfilter.nftables.value import CATCH_ALL, CatchAll, InterfacePrefix, Prefix, Range

_Shape = tuple[int | str, ...]
"""For each part: -1 for an exact one, the mask for a prefix, a name for anything else."""

_INEXACT: Final = frozenset({Prefix, Range, InterfacePrefix, CatchAll})


class IndexedElements:
    """The elements of a set or map."""

    __slots__ = ("_by_shape", "_catch_all", "_elements", "_exact", "_firsts", "_ranges")

    def __init__(self, elements: Iterable[Element]) -> None:
        self._elements = elements if isinstance(elements, tuple) else tuple(elements)
        self._by_shape: dict[_Shape, dict[tuple[object, ...], list[Element]]] = {}
        self._ranges: list[tuple[int, int, Element]] = []
        self._catch_all: Element | None = None
        self._exact: dict[object, Element] = {}
        for element in self._elements:
            key = element.key
            if _INEXACT.isdisjoint(map(type, key if isinstance(key, tuple) else (key,))):
                self._exact.setdefault(key, element)
            else:
                self._file(element)
        self._ranges.sort(key=lambda item: item[0])
        self._firsts = [first for first, _, _ in self._ranges]

    def _file(self, element: Element) -> None:
        key = element.key
        if key is CATCH_ALL:
            self._catch_all = element
            return
        if isinstance(key, Range):
            self._ranges.append((key.first, key.last, element))
            return
        parts = key if isinstance(key, tuple) else (key,)
        shape: list[int | str] = []
        exact: list[object] = []
        for part in parts:
            if isinstance(part, Prefix):
                shape.append(part.mask)
                exact.append(part.address)
            elif isinstance(part, (Range, InterfacePrefix)):
                shape.append("range")
            else:
                shape.append(-1)
                exact.append(part)
        self._by_shape.setdefault(tuple(shape), {}).setdefault(tuple(exact), []).append(element)

    def find(self, key: Value) -> Element | None:
        """The element that holds a known key."""
        exact = self._exact.get(key)
        if exact is not None:
            return exact
        parts = key if isinstance(key, tuple) else (key,)
        for shape, filed in self._by_shape.items():
            if len(shape) != len(parts):
                continue
            wanted = tuple(
                part & kind if isinstance(kind, int) and kind >= 0 and isinstance(part, int) else part
                for kind, part in zip(shape, parts, strict=True)
                if kind != "range"
            )
            for element in filed.get(wanted, ()):
                if "range" not in shape or fits(key, element.key):
                    return element
        if self._ranges and isinstance(key, int):
            position = bisect_right(self._firsts, key)
            for first, last, element in reversed(self._ranges[max(position - 8, 0) : position]):
                if first <= key <= last:
                    return element
        return self._catch_all

    def candidates(self, key: Value) -> Iterator[tuple[Element, bool]]:
        """The elements that may hold a key with open parts, and whether each surely does; the catch-all one is not
        among them."""
        for element in self._elements:
            if element.key is not CATCH_ALL:
                found = fits(key, element.key)
                if found is not False:
                    yield element, found is True

    @property
    def catch_all(self) -> Element | None:
        """The element `*`."""
        return self._catch_all

    def holds(self, key: Value) -> bool | None:
        """Whether an element holds the key; None if that is open."""
        if is_known(key):
            return self.find(key) is not None
        if self._catch_all is not None:
            return True
        found = [sure for _, sure in self.candidates(key)]
        return True if any(found) else None if found else False
