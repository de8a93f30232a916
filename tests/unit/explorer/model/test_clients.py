"""One host's rules, asked as a Pod, as the host and as a client outside; the worst of them is the mark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kproxy.explorer.answers.ask import Ask, answer
from kproxy.explorer.answers.map import map_answer
from kproxy.explorer.errors import Refusal
from kproxy.explorer.model.model import Model, Work
from tests.support.explorer.sources import source_of
from tests.support.paths import ROOT

DUMP = ROOT / "docs/examples/worker-1.save"


def drawn(path: Path, client: str = "") -> Any:
    model = Model(source_of(path).read(), 1)
    while True:
        found = json.loads(map_answer(model, client, Work(60)))
        if not found["pending"]:
            return found


def dns(found: Any) -> dict[str, tuple[str, str, str]]:
    edges = [each for each in found["edges"] if each["service"] == "svc/kube-system/kube-dns" and each["port"] == "dns"]
    return {each["endpoint"]: (each["chance"], each["lost"], each["why"]) for each in edges}


def test_what_pods_lose_is_the_mark_and_others_have_their_own() -> None:
    lost = {"10.244.1.2:53": ("1/2", "", ""), "10.244.2.2:53": ("0/1", "1/2", "dropped by filter FORWARD 5")}
    whole = {"10.244.1.2:53": ("1/2", "", ""), "10.244.2.2:53": ("1/2", "", "")}
    assert dns(drawn(DUMP, "pod")) == lost
    assert dns(drawn(DUMP, "node")) == dns(drawn(DUMP, "outside")) == whole
    worst = drawn(DUMP)
    words = "dropped by filter FORWARD 5, of a Pod of 10.244.0.0/16"
    assert dns(worst)["10.244.2.2:53"] == ("0/1", "1/2", words)
    assert [(each["id"], each["sender"]) for each in worst["clients"]] == [
        ("pod", "10.244.0.9"), ("node", "node/host"), ("outside", "203.0.113.9"),
    ]  # fmt: skip
    assert worst["unreached"] == []
    assert [(each["address"], each["label"]) for each in worst["outside"]] == [("10.244.0.9", "a Pod of 10.244.0.0/16")]
    assert [each["asker"] for each in worst["services"] if each["name"] != "kube-dns"] == ["", ""]
    assert drawn(DUMP, "outside")["outside"][0]["label"] == "a client outside"
    with pytest.raises(Refusal, match="there is no client 'other'; there are pod, node, outside"):
        drawn(DUMP, "other")


def test_who_asks_is_for_whom_it_is_worst(tmp_path: Path) -> None:
    """Of each Service; of all the one who loses most, the host itself without a box beside it."""
    lines = [line for line in DUMP.read_text().splitlines() if "no DNS to other racks" not in line]
    for rule, asker, outside in (
        ("-A OUTPUT -d 10.244.2.2/32 -j DROP", "node", []),
        ("-A FORWARD -s 203.0.113.0/24 -d 10.244.2.2/32 -j DROP", "outside", ["a client outside"]),
    ):
        at = min(place for place, line in enumerate(lines) if line.startswith("-A FORWARD"))
        (tmp_path / "rules").write_text("\n".join([*lines[:at], rule, *lines[at:]]) + "\n")
        found = drawn(tmp_path / "rules")
        assert {each["name"]: each["asker"] for each in found["services"]} == {"kube-dns": asker, "cart": "", "web": ""}
        assert [each["label"] for each in found["outside"]] == outside


def test_the_host_asks_from_an_address_that_is_no_pods() -> None:
    model = Model(source_of(DUMP).read(), 1)
    found = answer(model, Ask("node/host", "10.96.0.10:53", protocol="udp"))
    assert {way.end for way in found.journeys} == {"answered"}
    assert "the host is taken to send from an address that no rule is about" in found.assumptions


@pytest.mark.parametrize(
    ("rule", "end"),
    [
        ("-A PREROUTING -s 10.244.0.0/16 -p udp -j DROP", "dropped"),
        ("-A PREROUTING -m time --timestart 01:00:00 -j DROP", ""),
    ],
)
def test_what_leads_nowhere_is_said_and_never_an_empty_service(tmp_path: Path, rule: str, end: str) -> None:
    changed = DUMP.read_text().replace("COMMIT", f"{rule}\nCOMMIT", 1)
    (tmp_path / "rules").write_text(changed)
    found = [each for each in drawn(tmp_path / "rules")["unreached"] if each["port"] == "dns"]
    assert len(found) == 1
    assert bool(found[0]["open"]) is (not end)
    assert end in found[0]["stopped"]


def test_a_table_that_is_missing_leaves_services_open(tmp_path: Path) -> None:
    nat = DUMP.read_text().partition("*nat\n")[2]
    (tmp_path / "rules").write_text(f"*nat\n{nat}")
    found = drawn(tmp_path / "rules")
    assert found["edges"] == []
    assert {each["service"] for each in found["unreached"]} == {each["id"] for each in found["services"]}
    assert all(each["open"] for each in found["unreached"])
