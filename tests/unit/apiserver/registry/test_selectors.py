"""Label and field selectors, as kube-apiserver reads them (k8s.io/apimachinery pkg/labels, pkg/fields)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.apiserver.errors import StatusError
from kproxy.apiserver.registry.selectors import matches_fields, parse_field_selector, parse_label_selector
from kproxy.informer import matches_labels

FIELDS = ("metadata.name", "metadata.namespace", "spec.type")


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a=", {"a": ""}, True),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("!a,!b", {"c": "d"}, True),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b,c)", {}, False),
        ("a notin (b)", {}, True),
        ("a notin (b)", {"a": "b"}, False),
        ("a in (),a", {"a": ""}, True),
        ("a>1", {"a": "2"}, True),
        ("a<1", {"a": "2"}, False),
        ("a>1", {"a": "x"}, False),
        ("x.org/a in (b),c=d", {"x.org/a": "b", "c": "d"}, True),
        ("in=notin", {"in": "notin"}, True),
    ],
)
def test_labels(selector: str, labels: dict[str, str], matches: bool) -> None:
    assert matches_labels(parse_label_selector(selector), labels) is matches


@pytest.mark.parametrize(
    "selector", ["a in (", "a in b", "=b", "a=b c", ",", "a,,b", "a in (b", "!", "!a=b", "a b", "a=b=c", "a>x", "-a=b"]
)
def test_bad_label_selectors(selector: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_label_selector(selector)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("selector", "fields", "matches"),
    [
        ("", {}, True),
        ("metadata.name=a", {"metadata.name": "a"}, True),
        ("metadata.name==a,spec.type!=B", {"metadata.name": "a", "spec.type": "B"}, False),
        ("spec.type!=B", {}, True),
        ("spec.type=", {}, True),
        ("spec.type=a\\,b\\=c", {"spec.type": "a,b=c"}, True),
    ],
)
def test_fields(selector: str, fields: dict[str, str], matches: bool) -> None:
    assert matches_fields(parse_field_selector(selector, FIELDS), fields) is matches


@pytest.mark.parametrize("selector", ["x=y", "metadata.name", "==", "metadata.name>a", "metadata.uid=a"])
def test_bad_field_selectors(selector: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_field_selector(selector, FIELDS)
    assert caught.value.code == 400


@given(st.text("ab=!,() innotx<>1\\", max_size=14))
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    for parse in (parse_label_selector, lambda each: parse_field_selector(each, FIELDS)):
        try:
            parse(text)
        except StatusError as error:
            assert error.code == 400  # noqa: PT017


def test_long_selectors_are_not_kept() -> None:
    """4,096 of those that fit a request line would take gigabytes."""
    text = ",".join(f"a{number}" for number in range(1000))
    assert parse_label_selector(text) is not parse_label_selector(text)
    assert parse_label_selector("a=b,c") is parse_label_selector("a=b,c")
    fields = ",".join(f"metadata.name!=a{number}" for number in range(1000))
    found = [parse_field_selector(fields, ("metadata.name",)) for _ in range(2)]
    assert found[0] is not found[1]
