"""The one enum for the IP family."""

from __future__ import annotations

import pytest

from kproxy.family import IPFamily
from kproxy.netfilter import Family
from kproxy.services import IPFamily as ServicesFamily


def test_one_enum_has_two_public_names() -> None:
    assert Family is IPFamily
    assert ServicesFamily is IPFamily


@pytest.mark.parametrize(("version", "text", "bits"), [(4, "IPv4", 32), (6, "IPv6", 128)])
def test_a_family_by_number_and_by_text(version: int, text: str, bits: int) -> None:
    family = IPFamily(version)
    assert family is IPFamily(text)
    assert (family.version, family.value, family.bits, family.full_mask) == (version, text, bits, (1 << bits) - 1)
    assert family.is_ipv6 is (version == 6)


@pytest.mark.parametrize("value", [5, "4", None])
def test_no_other_family(value: object) -> None:
    with pytest.raises(ValueError, match="is not a valid IPFamily"):
        IPFamily(value)
