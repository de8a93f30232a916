"""Label selectors, as workloads have them."""

from __future__ import annotations

from kproxy.informer import selector_matches


def test_selectors() -> None:
    labels = {"app": "web", "tier": "front"}
    assert selector_matches({}, labels)
    assert selector_matches({"matchLabels": {"app": "web"}}, labels)
    assert not selector_matches({"matchLabels": {"app": "web", "x": "y"}}, labels)

    def term(operator: str, key: str, *values: str) -> bool:
        return selector_matches({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}, labels)

    assert term("In", "app", "api", "web")
    assert not term("In", "other", "web")
    assert term("NotIn", "app", "api")
    assert term("NotIn", "other", "x")
    assert not term("NotIn", "app", "web")
    assert term("Exists", "tier")
    assert not term("Exists", "other")
    assert term("DoesNotExist", "other")
    assert not term("DoesNotExist", "app")
