"""The API server's rules for names, labels and annotations.

Each `check_` function returns the messages of k8s.io/apimachinery/pkg/util/validation for one value, () when it is
legal. They are memoised: a cluster repeats its namespaces, node names, zones and label keys thousands of times.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_QUALIFIED})?"

# `.fullmatch` on each: `$` in Python also matches before a final newline.
_LABEL_RE: Final = re.compile(_LABEL)
_SUBDOMAIN_RE: Final = re.compile(_SUBDOMAIN)
_QUALIFIED_RE: Final = re.compile(_QUALIFIED)
_VALUE_RE: Final = re.compile(_VALUE)

_LABEL_MESSAGE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_MESSAGE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    rf"'{_LABEL}(\.{_LABEL})*')"
)
_QUALIFIED_MESSAGE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_VALUE_MESSAGE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    f"is '{_VALUE}')"
)

_CACHE: Final = 1 << 16


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


@lru_cache(_CACHE)
def check_dns_label(value: str) -> tuple[str, ...]:
    """RFC 1123 label: port names, hostnames, namespaces and, from v1.36 on, Service names.

    Service names were RFC 1035 labels (no leading digit) until the gate RelaxedServiceNameValidation (KEP-5311) was
    enabled by default in v1.36 (kubernetes/kubernetes pull request 136389).
    """
    messages = []
    if len(value.encode("utf-8", "surrogatepass")) > 63:
        messages.append(_too_long(63))
    if not _LABEL_RE.fullmatch(value):
        messages.append("must not contain dots" if _SUBDOMAIN_RE.fullmatch(value) else _LABEL_MESSAGE)
    return tuple(messages)


@lru_cache(_CACHE)
def check_dns_subdomain(value: str) -> tuple[str, ...]:
    """RFC 1123 subdomain: names of EndpointSlices, Endpoints and Nodes."""
    messages = []
    if len(value.encode("utf-8", "surrogatepass")) > 253:
        messages.append(_too_long(253))
    if not _SUBDOMAIN_RE.fullmatch(value):
        messages.append(_SUBDOMAIN_MESSAGE)
    return tuple(messages)


@lru_cache(_CACHE)
def check_fqdn(value: str) -> tuple[str, ...]:
    """A fully qualified domain name, as an EndpointSlice of address type FQDN holds it."""
    name = value.removesuffix(".")
    if messages := check_dns_subdomain(name):
        return messages
    if name.count(".") < 1:
        return ("should be a domain with at least two segments separated by dots",)
    return tuple(message for label in name.split(".") for message in check_dns_label(label))


@lru_cache(_CACHE)
def check_qualified_name(value: str) -> tuple[str, ...]:
    """A label or annotation key, an appProtocol, a loadBalancerClass: `[prefix/]name`."""
    messages: list[str] = []
    prefix, slash, name = value.rpartition("/")
    if value.count("/") > 1:
        hint = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (f"a qualified name {_QUALIFIED_MESSAGE} {hint}",)
    if slash:
        if not prefix:
            messages.append("prefix part must be non-empty")
        else:
            messages.extend("prefix part " + message for message in check_dns_subdomain(prefix))
    if not name:
        messages.append("name part must be non-empty")
    elif len(name) > 63:
        messages.append("name part " + _too_long(63))
    if not _QUALIFIED_RE.fullmatch(name):
        messages.append("name part " + _QUALIFIED_MESSAGE)
    return tuple(messages)


@lru_cache(_CACHE)
def check_label_value(value: str) -> tuple[str, ...]:
    """A label's value, a zone name in a hint."""
    messages = []
    if len(value.encode("utf-8", "surrogatepass")) > 63:
        messages.append(_too_long(63))
    if not _VALUE_RE.fullmatch(value):
        messages.append(_VALUE_MESSAGE)
    return tuple(messages)


@lru_cache(_CACHE)
def check_port_name(value: str) -> tuple[str, ...]:
    """An IANA service name: what a targetPort may be beside a number."""
    messages = []
    if len(value.encode("utf-8", "surrogatepass")) > 15:
        messages.append(_too_long(15))
    if not re.fullmatch("[-a-z0-9]+", value):
        messages.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        messages.append("must contain at least one letter (a-z)")
    if "--" in value:
        messages.append("must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        messages.append("must not begin or end with a hyphen")
    return tuple(messages)


def check_port_number(value: int) -> tuple[str, ...]:
    """A TCP, UDP or SCTP port."""
    return () if 1 <= value <= 65535 else ("must be between 1 and 65535, inclusive",)
