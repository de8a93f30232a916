"""String and number formats of schemas, with kube-apiserver's verdicts.

Texts and verdicts follow k8s.io/kube-openapi pkg/validation/strfmt/default_test.go, Go's net/url, net/mail and net, and
the formats' documentation in apiextensions/v1.
"""

from __future__ import annotations

import pytest

from kproxy.apiserver.crd.validation import FORMATS, NUMBERS, has_format, validate_value

VERDICTS: dict[str, tuple[list[str], list[str]]] = {
    "byte": (["dGV4dA==", "YWJj", "YWI="], ["dGV4dA=", "a", "", "ab_c"]),
    "cidr": (["10.0.0.0/8", "fd00::/64", "192.0.2.1/24"], ["10.0.0.0", "10.0.0.0/33", "fd00::/129"]),
    "date": (["2026-02-28", "2024-02-29"], ["2026-02-30", "2026-2-3", "20260203", ""]),
    "date-time": (["2026-01-02T03:04:05Z", "2026-01-02t03:04:05.123+02:00"],
                  ["2026-01-02 03:04:05Z", "2026-01-02T25:04:05Z", "2026-01-02T03:04:05", "2026-02-30T03:04:05Z"]),
    "datetime": (["2026-01-02T03:04:05Z"], ["2026-01-02"]),
    "duration": (["1h30m", "10s", "1.5h", "3 days", "2 weeks", "0", "-5m"], ["1", "h", "3 lightyears", "", "1h "[:1]]),
    "email": (["a@example.org", "a@b", "Ann <a@example.org>", '"a b"@example.org'],
              ["a", "a@", "@b", "a b@c"]),
    "hostname": (["localhost", "example.org", "a-b.example.org", "x1"],
                 ["a.b", "1.2.3.4", "a_b", "-a", "my-host", "example.org.", "", "a" * 64 + ".org"]),
    "ipv4": (["10.0.0.1"], ["10.0.0", "fd00::1", "10.0.0.256", ""]),
    "ipv6": (["fd00::1", "::"], ["10.0.0.1", "fd00:::1", ""]),
    "password": (["", "anything"], []),
    "uri": (["https://example.org/a?b#c", "/path", "mailto:a@b", "http://[::1]:80/"],
            ["relative", "", "http://a b/", "a b"]),
    "uuid": (["00000000-0000-0000-0000-000000000000", "A987FBC94BED3078CF079141BA07C9F3"], ["a987fbc9", ""]),
}  # fmt: skip


def test_each_format_has_verdicts() -> None:
    assert {name.replace("-", "") for name in VERDICTS} == set(FORMATS)


@pytest.mark.parametrize("name", VERDICTS)
def test_texts_of_a_format(name: str) -> None:
    good, bad = VERDICTS[name]
    assert {text: has_format(text, name) for text in good} == dict.fromkeys(good, True)
    assert {text: has_format(text, name) for text in bad} == dict.fromkeys(bad, False)


def test_an_unknown_format_is_no_constraint() -> None:
    assert has_format("x", "moon-phase")


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_out_of_range(name: str) -> None:
    low, high = NUMBERS[name]
    schema = {"type": "number" if name == "float" else "integer", "format": name}
    assert [str(each) for each in validate_value(low, schema, "n")] == []
    assert [str(each) for each in validate_value(high, schema, "n")] == []
    (error,) = validate_value(high * 2 + 1, schema, "n")
    assert f"Checked value must be of type {schema['type']} with format {name}" in str(error)


def test_the_error_is_the_api_servers() -> None:
    (error,) = validate_value("x", {"type": "string", "format": "cidr"}, "spec.net")
    assert str(error) == 'spec.net: Invalid value: "x": spec.net in body must be of type cidr: "x"'
