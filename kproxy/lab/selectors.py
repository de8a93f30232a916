"""Label selectors: metav1.LabelSelector, as workloads have it.

An empty selector matches everything, as apimachinery's LabelSelectorAsSelector says.
"""

from __future__ import annotations

from collections.abc import Mapping

from kproxy.lab.resources import Object


def selector_matches(selector: Object, labels: Mapping[str, str]) -> bool:
    """Whether labels are selected: all of matchLabels, and every one of matchExpressions."""
    pairs = selector.get("matchLabels") or {}
    return all(labels.get(name) == value for name, value in pairs.items()) and all(
        _term_matches(term, labels) for term in selector.get("matchExpressions") or ()
    )


def _term_matches(term: Object, labels: Mapping[str, str]) -> bool:
    key, values = str(term.get("key")), term.get("values") or ()
    match term.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False  # the API server takes no other
