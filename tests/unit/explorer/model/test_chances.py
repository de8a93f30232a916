"""The chances on the map: of rules that were read they are what the model says of these rules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kproxy.explorer.state import Explorer
from tests.support.cluster.snapshots import vxlan_cluster, write_files
from tests.support.explorer.client import Page, serving
from tests.support.explorer.sources import source_of

SAVE = "nodes/n1/iptables-save"
GOLDEN = Path("rules_golden/external-ips/expected")


def whole_map(page: Page, path: str = "api/map") -> Any:
    """The map once all rules have been asked; each request asks some."""
    while (found := page.get(path))["pending"]:
        pass
    return found


def edges(found: Any) -> dict[str, tuple[str, str, str, str]]:
    """Chance, whose it is, what the objects ask for, and why nothing comes, by endpoint."""
    return {each["endpoint"]: (each["chance"], each["by"], each["objects"], each["why"]) for each in found["edges"]}


def test_rules_as_the_objects_ask_for_give_their_chances(page: Page) -> None:
    assert edges(whole_map(page)) == {
        "10.244.1.5:8080": ("1/2", "rules", "", ""),
        "10.244.2.5:8080": ("1/2", "rules", "", ""),
    }
    # Of a copy the rules are made from the objects.
    assert {each[1] for each in edges(page.get("api/map?source=objects")).values()} == {"objects"}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (
            lambda text: text.replace("--probability 0.50000000000", "--probability 0.25000000000"),
            {"10.244.1.5:8080": ("1/4", "rules", "1/2", ""), "10.244.2.5:8080": ("3/4", "rules", "1/2", "")},
        ),
        (
            lambda text: text.replace("--to-destination 10.244.2.5:8080", "--to-destination 10.244.9.9:8080"),
            {
                "10.244.1.5:8080": ("1/2", "rules", "", ""),
                "10.244.2.5:8080": ("0/1", "rules", "1/2", "the rules of n1 do not lead there"),
                "10.244.9.9:8080": ("1/2", "rules", "0/1", "not among the endpoints that the objects have"),
            },
        ),
        (
            lambda text: text.replace("-A FORWARD ", "-A FORWARD -d 10.244.1.5/32 -j DROP\n-A FORWARD ", 1),
            {
                "10.244.1.5:8080": ("0/1", "rules", "1/2", "dropped by filter FORWARD 1"),
                "10.244.2.5:8080": ("1/2", "rules", "", ""),
            },
        ),
    ],
    ids=["another chance", "another endpoint", "another program's rule"],
)
def test_where_rules_and_objects_differ_the_rules_count_and_that_is_said(
    tmp_path: Path, change: Callable[[str], str], wanted: dict[str, tuple[str, str, str, str]]
) -> None:
    files = dict(vxlan_cluster())
    text = change(files[SAVE].decode())
    assert text != files[SAVE].decode()
    files[SAVE] = text.encode()
    directory = write_files(tmp_path / "shop", files)
    with serving(Explorer(source_of(directory))) as page:
        found = whole_map(page)
        assert edges(found) == wanted
        assert all(each["used"] is (each["chance"] != "0/1") for each in found["edges"])
        # The other node's rules are as they should be; what n1 drops is lost also from there.
        elsewhere = {end: each[3] for end, each in edges(whole_map(page, "api/map?node=n2")).items() if each[2]}
        dropped = [end for end, each in wanted.items() if each[3].startswith("dropped")]
        assert elsewhere == dict.fromkeys(dropped, "dropped by a rule in FORWARD on n1")
        door = page.get("api/services/shop/web")["ports"][0]["fan"][0]
        assert (door["kind"], door["by"]) == ("clusterIP", "rules")
        assert {each["address"]: each["chance"] for each in door["endpoints"]} == {
            endpoint: each[0] for endpoint, each in wanted.items()
        }


def test_a_node_whose_rules_are_not_known_has_the_chances_of_the_objects(tmp_path: Path) -> None:
    files = {path: data for path, data in vxlan_cluster().items() if not path.startswith("nodes/n1/ip")}
    with serving(Explorer(source_of(str(write_files(tmp_path / "shop", files))))) as page:
        found = edges(whole_map(page))
        assert {(each[0], each[1]) for each in found.values()} == {("1/2", "objects")}
        assert all(each[3].startswith("not decided: the IPv4 rules of n1") for each in found.values())


@pytest.mark.parametrize("form", ["save", "nft"])
def test_a_dump_tells_of_services_and_where_they_lead(form: str) -> None:
    with serving(Explorer(source_of(GOLDEN / f"node-0.v4.{form}"))) as page:
        found = whole_map(page)
        source = page.get("api/source")
        assert (source["services"], source["namespaces"], source["can"]["services"]) == (2, ["shop"], False)
        services = {each["id"]: each for each in found["services"]}
        assert sorted(services) == ["svc/shop/frontend", "svc/shop/mail"]
        assert [each["mode"] for each in found["nodes"]] == ["iptables" if form == "save" else "nftables"]
        mail = services["svc/shop/mail"]
        assert (mail["clusterIPs"], mail["externalIPs"]) == (["10.96.0.61"], ["198.51.100.20"])
        assert mail["ports"] == [{"name": "smtp", "protocol": "TCP", "port": 25, "target": "", "nodePort": 0}]
        (edge,) = [each for each in found["edges"] if each["service"] == "svc/shop/mail"]
        assert (edge["endpoint"], edge["chance"], edge["by"]) == ("10.244.0.6:2525", "1/1", "rules")
        asked = page.post("api/ask", {"from": "outside", "to": "svc/shop/mail:smtp"})
        assert {each["target"] for each in asked["journeys"]} == {"10.244.0.6:2525"}
        none = page.ask("POST", "api/ask", {"from": "outside", "to": "svc/shop/none"})
        assert none.error == "to: to: the rules tell of no svc/shop/none"


def test_ipsets_that_are_given_with_a_dump_are_looked_up(tmp_path: Path) -> None:
    dump, sets = tmp_path / "host.save", tmp_path / "host.ipset"
    dump.write_text(
        "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m set --match-set bad dst -j DROP\nCOMMIT\n"
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A FORWARD -j REJECT\n"
        "-A INPUT -j REJECT\nCOMMIT\n"
    )
    sets.write_text("create bad hash:ip family inet hashsize 1024 maxelem 65536\nadd bad 192.0.2.7\n")
    with serving(Explorer(source_of(dump, str(sets)))) as page:
        ends = {}
        for address in ("192.0.2.7", "192.0.2.8"):
            found = page.post("api/ask", {"from": "203.0.113.9", "to": f"{address}:80"})
            ends[address] = {each["end"] for each in found["journeys"]}
    assert ends == {"192.0.2.7": {"lost"}, "192.0.2.8": {"refused"}}


@pytest.mark.parametrize(
    ("match", "hints"),
    [
        ("-m set --match-set bad dst", ["the contents of the ipset (ipset save)"]),
        ("-m limit --limit 5/sec", []),
    ],
)
def test_an_unknown_set_and_a_rate_have_a_switch(tmp_path: Path, match: str, hints: list[str]) -> None:
    dump = tmp_path / "host.save"
    dump.write_text(f"*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING {match} -j DROP\nCOMMIT\n")
    asked = {"from": "203.0.113.9", "to": "192.0.2.7:80"}
    with serving(Explorer(source_of(dump))) as page:
        found = page.post("api/ask", asked)
        (switch,) = found["settle"]
        assert switch["expression"] == match
        assert switch["chosen"] is None
        assert found["hints"] == hints
        assert {way["end"] for way in found["journeys"]} == {"open"}
        ends = {}
        for answer in (True, False):
            found = page.post("api/ask", {**asked, "assume": {match: answer}})
            assert [each["chosen"] for each in found["settle"]] == [answer]
            ends[answer] = {way["end"] for way in found["journeys"]}
    assert ends == {True: {"lost"}, False: {"answered"}}
