"""Which controllers of the server run: kube-controller-manager's names and its flag `--controllers`.

Those without which the API itself would not work are no choice: the names and conditions of CRDs, the system's own
objects, Events that grow old.
"""

from __future__ import annotations

from typing import Final

from kproxy.errors import InputError

ENDPOINT_SLICES: Final = "endpointslice-controller"
NAMESPACES: Final = "namespace-controller"
GARBAGE: Final = "garbage-collector-controller"
AGGREGATION: Final = "clusterrole-aggregation-controller"
ACCOUNTS: Final = "serviceaccount-controller"
CONTROLLERS: Final = frozenset({ENDPOINT_SLICES, NAMESPACES, GARBAGE, AGGREGATION, ACCOUNTS})
"""All that can be switched off."""


def parse_controllers(text: str) -> frozenset[str]:
    """The controllers that a list asks for: `*` stands for all, `name` for one, `-name` for none of it; the first that
    speaks of a controller counts, and what nothing speaks of is off.

    >>> sorted(parse_controllers("*,-namespace-controller") ^ CONTROLLERS)
    ['namespace-controller']

    Raises:
        InputError: a name is unknown.
    """
    chosen: dict[str, bool] = {}
    rest = False
    for part in filter(None, (part.strip() for part in text.split(","))):
        name = part.removeprefix("-")
        if part == "*":
            rest = True
        elif name in CONTROLLERS:
            chosen.setdefault(name, not part.startswith("-"))
        else:
            raise InputError(f"--controllers: no controller {name}; there are {', '.join(sorted(CONTROLLERS))}")
    return frozenset(name for name in CONTROLLERS if chosen.get(name, rest))
