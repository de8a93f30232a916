"""resource.Quantity, as Go prints it: examples from k8s.io/apimachinery pkg/api/resource/quantity_test.go."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.apiserver.schema.quantity import canonical_quantity
from tests.support.apiserver.server import Api

CANONICAL = [
    ("0", "0"), ("0n", "0"), ("00.0Ki", "0"), ("1", "1"), ("1000m", "1"), ("0.5", "500m"), (".5", "500m"),
    ("1.5", "1500m"), ("1024Ki", "1Mi"), ("1.5Gi", "1536Mi"), ("1500Ki", "1500Ki"), ("512Ki", "512Ki"),
    ("0.5Ki", "512"), ("0.3Gi", "322122547200m"), ("1000", "1k"), ("1000k", "1M"), ("2048", "2048"), ("1E", "1E"),
    ("1e3", "1e3"), ("1e2", "100"), ("12e4", "120e3"), ("1E-3", "1E-3"), ("-1000m", "-1"), ("-1.5Ki", "-1536"),
    ("0.1n", "1n"), ("-0.1n", "-1n"), ("1.0000000001", "1000000001n"), ("9223372036854775808", "9223372036854775807"),
    ("16Ei", "9223372036854775807"), ("1e1000", "9223372036854775807"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), CANONICAL)
def test_canonical(text: str, wanted: str) -> None:
    assert canonical_quantity(text) == wanted


@pytest.mark.parametrize("text", ["", "m", "1 ", "1Kib", "1e", "1KI", "0x1", "1,5", "--1", "1..2", "."])
def test_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        canonical_quantity(text)


_WORTH = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}


def _value(text: str) -> Decimal:
    suffix = text.lstrip("+-0123456789.")
    number = Decimal(text[: len(text) - len(suffix)])
    return number * (1 << _BINARY[suffix]) if suffix in _BINARY else number.scaleb(_WORTH[suffix])


@given(
    st.decimals(min_value=-10_000, max_value=10_000, places=3).filter(lambda number: number == number),
    st.sampled_from(["", "m", "k", "M", "Ki", "Mi"]),
)
def test_the_value_stays_and_printing_is_idempotent(number: Decimal, suffix: str) -> None:
    text = f"{number}{suffix}"
    printed = canonical_quantity(text)
    assert _value(printed) == _value(text)
    assert canonical_quantity(printed) == printed


def test_objects_hold_canonical_quantities(shared: Api) -> None:
    capacity = {"cpu": "4000m", "memory": "1048576Ki", "example.org/odd": "0.0001"}
    node = shared.ok("POST", "/api/v1/nodes", {"metadata": {"name": "q"}, "status": {"capacity": capacity}})
    assert node["status"]["capacity"] == {"cpu": "4", "memory": "1Gi", "example.org/odd": "1m"}
    assert node["status"]["allocatable"] == node["status"]["capacity"]
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}
    spec = {"containers": [container], "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "2048Ki"}}]}
    pods = "/api/v1/namespaces/default/pods"
    pod = shared.ok("POST", pods, {"metadata": {"name": "q"}, "spec": spec})
    assert pod["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "500m", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "1Gi"},
    }
    assert pod["spec"]["volumes"][0]["emptyDir"] == {"sizeLimit": "2Mi"}
    patch = {"status": {"capacity": {"cpu": "2.5"}}}
    patched = shared.ok("PATCH", "/api/v1/nodes/q/status", patch, "application/merge-patch+json")
    assert patched["status"]["capacity"]["cpu"] == "2500m"
    status, answer = shared("POST", pods, {"metadata": {"name": "r"}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"limits": {"cpu": "lots"}}}]}})  # fmt: skip
    assert (status, "quantities must match the regular expression" in answer["message"]) == (400, True)
