"""Names, labels and ports, with the API server's messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.api.validation import names

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
QUALIFIED = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize("value", ["a", "1", "web", "1password", "a-b", "a" * 63])
def test_dns_label(value: str) -> None:
    assert names.check_dns_label(value) == ()


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("", (LABEL,)),
        ("Web", (LABEL,)),
        ("-a", (LABEL,)),
        ("a-", (LABEL,)),
        ("a\n", (LABEL,)),
        ("a_b", (LABEL,)),
        ("é", (LABEL,)),
        ("a.b", ("must not contain dots",)),
        ("a" * 64, ("must be no more than 63 bytes",)),
        ("\udc80" * 22, ("must be no more than 63 bytes", LABEL)),
    ],
)
def test_no_dns_label(value: str, messages: tuple[str, ...]) -> None:
    assert names.check_dns_label(value) == messages


def test_dns_subdomain() -> None:
    assert names.check_dns_subdomain("a.b-c.d1") == ()
    assert names.check_dns_subdomain("a" * 253) == ()
    assert names.check_dns_subdomain("a" * 254) == ("must be no more than 253 bytes",)
    for value in ("", ".a", "a..b", "A", "a.", "a-.b", "a\n"):
        assert names.check_dns_subdomain(value) == (SUBDOMAIN,)


def test_fqdn() -> None:
    assert names.check_fqdn("example.com.") == ()
    assert names.check_fqdn("example") == ("should be a domain with at least two segments separated by dots",)
    assert names.check_fqdn("a b") == (SUBDOMAIN,)
    assert names.check_fqdn("x." + "a" * 64) == ("must be no more than 63 bytes",)


def test_qualified_name() -> None:
    for value in ("app", "App.kubernetes_io", "example.com/app", "a/b"):
        assert names.check_qualified_name(value) == ()
    assert names.check_qualified_name("") == ("name part must be non-empty", "name part " + QUALIFIED)
    assert names.check_qualified_name("a/") == ("name part must be non-empty", "name part " + QUALIFIED)
    assert names.check_qualified_name("/a") == ("prefix part must be non-empty",)
    assert names.check_qualified_name("A/b") == ("prefix part " + SUBDOMAIN,)
    assert names.check_qualified_name("a" * 64) == ("name part must be no more than 63 bytes",)
    assert names.check_qualified_name("a b") == ("name part " + QUALIFIED,)
    assert names.check_qualified_name("a/b/c") == (
        f"a qualified name {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
    )


def test_label_value() -> None:
    for value in ("", "a", "A.b_c-9", "a" * 63):
        assert names.check_label_value(value) == ()
    for value in ("-", "a/b", "a b", "a\n", "_a"):
        assert names.check_label_value(value) == (VALUE,)
    assert names.check_label_value("a" * 64) == ("must be no more than 63 bytes",)


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("http", ()),
        ("a23456789012345", ()),
        ("a234567890123456", ("must be no more than 15 bytes",)),
        ("HTTP", (
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
            "must contain at least one letter (a-z)",
        )),
        ("80", ("must contain at least one letter (a-z)",)),
        ("a--b", ("must not contain consecutive hyphens",)),
        ("-a", ("must not begin or end with a hyphen",)),
        ("a-", ("must not begin or end with a hyphen",)),
        ("a\n", ("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",)),
    ],
)  # fmt: skip
def test_port_name(value: str, messages: tuple[str, ...]) -> None:
    assert names.check_port_name(value) == messages


@pytest.mark.parametrize(("value", "legal"), [(1, True), (65535, True), (0, False), (65536, False), (-1, False)])
def test_port_number(value: int, legal: bool) -> None:
    assert names.check_port_number(value) == (() if legal else ("must be between 1 and 65535, inclusive",))


@given(st.from_regex("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True))
def test_every_label_is_a_subdomain_and_a_label_value(value: str) -> None:
    assert names.check_dns_label(value) == names.check_dns_subdomain(value) == names.check_label_value(value) == ()


@given(st.text())
def test_any_text_is_judged(value: str) -> None:
    assert (names.check_dns_label(value) == ()) <= (names.check_dns_subdomain(value) == ())
    names.check_qualified_name(value)
    names.check_fqdn(value)
    names.check_port_name(value)
