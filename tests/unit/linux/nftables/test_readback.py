"""What nft printed of recorded clusters' tables is read back as the table that was loaded, whatever its version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kproxy.linux.errors import UnreadableDumpError
from kproxy.linux.nftables.change import difference
from kproxy.linux.nftables.readback import parse_listing
from kproxy.linux.nftables.table import TableText
from tests.support.linux.nft_tables import parse_script
from tests.support.recorded import REFERENCE

LISTINGS = sorted((REFERENCE / "nft-json").glob("*/*.json"))


def loaded(listing: Path) -> TableText:
    """The table that was loaded before this was listed."""
    case, family = listing.stem.split(".")
    return parse_script((REFERENCE / "clusters" / case / f"kube-proxy.{family}.nft").read_text())


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_nothing_differs(listing: Path) -> None:
    wanted = loaded(listing)
    found = parse_listing(listing.read_text(), wanted)
    assert not difference(found.table, wanted)
    assert (found.foreign, found.foreign_rules) == ((), ())
    # And rules count: without its first rule every chain that has one differs.
    objects = json.loads(listing.read_text())["nftables"]
    first = {each["rule"]["chain"]: each for each in reversed(objects) if "rule" in each}
    rest = [each for each in objects if each not in first.values()]
    without = difference(parse_listing(json.dumps({"nftables": rest}), wanted).table, wanted)
    assert set(without.rules) == set(wanted.rules)


def test_the_recordings_differ_where_versions_and_hosts_do() -> None:
    texts = {path.parent.name: path.read_text() for path in LISTINGS if path.stem == "case-10067.v4"}
    assert texts.keys() == {"1.0.6", "1.1.3", "1.1.3-without-etc-protocols"}
    assert '"tcp"' in texts["1.1.3"]
    assert '"tcp"' not in texts["1.1.3-without-etc-protocols"]
    assert '"comment": "rules for kube-proxy"' in texts["1.1.3"]
    assert '"comment": "rules for kube-proxy"' not in texts["1.0.6"]


@pytest.mark.parametrize("text", ["", "nothing", "[]", "{}", '{"nftables": [1]}', '{"nftables": [{"chain": {}}]}'])
def test_what_is_not_nfts_json_is_an_error(text: str) -> None:
    with pytest.raises(UnreadableDumpError, match="what nft -j list table ip kube-proxy prints cannot be understood"):
        parse_listing(text, TableText("ip kube-proxy"))
