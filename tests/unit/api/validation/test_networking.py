"""ServiceCIDRs in manifests, and the API server's checks of them."""

from __future__ import annotations

import pytest

from kproxy.api import ManifestError, parse_manifests

HEAD = "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: more}\nspec:\n"


def test_a_service_cidr_is_read() -> None:
    found = parse_manifests(f"{HEAD}  cidrs: [10.96.0.0/16, 'FD00:10:96:0::/112']\n")
    assert [item.cidrs for item in found.service_cidrs] == [("10.96.0.0/16", "fd00:10:96::/112")]
    assert found.skipped == {}


def test_host_bits_are_a_warning() -> None:
    (warning,) = parse_manifests(f"{HEAD}  cidrs: [10.96.0.1/16]\n").warnings
    assert "spec.cidrs[0]" in warning


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("  cidrs: []\n", "spec.cidrs: Required value"),
        ("  {}\n", "spec.cidrs: Required value"),
        ("  cidrs: [10.96.0.0]\n", 'spec.cidrs[0]: Invalid value: "10.96.0.0"'),
        ("  cidrs: [10.96.0.0/16, 10.97.0.0/16]\n", "no more than one IP for each IP family"),
        ("  cidrs: [10.96.0.0/16, 10.97.0.0/16, fd00::/112]\n", "may only hold up to 2 values"),
        ("  cidrs: 10.96.0.0/16\n", "spec.cidrs"),
    ],
)
def test_refused(spec: str, told: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifests(HEAD + spec, "f")
    assert told in str(caught.value)
