"""Label selectors: requirements on labels, whether they come as metav1.LabelSelector, as a map or as text.

Source of the semantics: k8s.io/apimachinery pkg/labels (selector.go) and pkg/apis/meta/v1 (LabelSelectorAsSelector).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

Selector = Callable[[Mapping[str, str]], bool]
"""Says whether labels are selected."""

_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}


class Requirement(msgspec.Struct, frozen=True):
    """One condition on one label. `operator` is in, notin, exists, absent, > or <; no other is ever met."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
            case ">" | "<" if value is not None:
                try:
                    left, right = int(value), int(self.values[0])
                except ValueError:
                    return False
                return left > right if self.operator == ">" else left < right
        return False


def matches_labels(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Whether labels meet every requirement."""
    return all(requirement.matches(labels) for requirement in requirements)


def selector_requirements(selector: Mapping[str, Any]) -> list[Requirement]:
    """The requirements of a metav1.LabelSelector; none for an empty one, which selects everything."""
    pairs = (selector.get("matchLabels") or {}).items()
    found = [Requirement(key, "in", (value,)) for key, value in pairs]
    for term in selector.get("matchExpressions") or ():
        operator = str(term.get("operator"))
        found.append(
            Requirement(term.get("key", ""), _OPERATORS.get(operator, operator), tuple(term.get("values") or ()))
        )
    return found


def selector_matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a metav1.LabelSelector selects labels."""
    return matches_labels(selector_requirements(selector), labels)


def everything(_labels: Mapping[str, str]) -> bool:
    """The selector that selects all."""
    return True


def matching(wanted: Mapping[str, str]) -> Selector:
    """The selector of all that have these labels with these values: a Service's selector."""
    pairs = tuple(wanted.items())
    return lambda labels: all(labels.get(key) == value for key, value in pairs)
