"""`kproxy diff`: sides, answers, exit codes, JSON, errors."""

from __future__ import annotations

import gzip
import json
import re
import tarfile
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support import paths
from tests.support.cli import Run, held_by
from tests.support.cluster.snapshots import damaged_files, vxlan_cluster, write_files

ROOT = paths.ROOT
EXAMPLES = ROOT / "docs" / "examples"
GOLDEN = ROOT / "rules_golden"
MINI = GOLDEN / "minikube"
RULES = MINI / "expected" / "minikube.v4.save"
RULES_V6 = MINI / "expected" / "minikube.v6.save"
WATCHERS = "10.103.198.138:8080/tcp"


@pytest.fixture
def without_endpoint(tmp_path: Path) -> Path:
    """minikube's rules without the first endpoint of crd-array-watchers."""
    rules = RULES.read_text().splitlines()
    (chain,) = (line.split()[-1] for line in rules if "0.50000000000" in line)
    lines = [line for line in rules if chain not in line]
    path = tmp_path / "after.save"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_alike(kproxy: Run) -> None:
    done = kproxy("diff", RULES, RULES)
    assert (done.returncode, done.stderr) == (0, "")
    assert "alike: every packet is treated the same" in done.stdout
    assert "64 rules" in done.stdout


def test_names_comments_counters_and_the_order_of_disjoint_rules_are_no_difference(kproxy: Run, tmp_path: Path) -> None:
    lines = RULES.read_text().replace("KUBE-SVC-", "OTHER-SVC-").replace("kubernetes", "cluster").splitlines()
    places = [place for place, line in enumerate(lines) if line.startswith("-A KUBE-SERVICES -d")]
    chosen = [lines[place] for place in reversed(places)]
    for place, line in zip(places, chosen, strict=True):
        lines[place] = f"[7:420] {line}"
    path = tmp_path / "other.save"
    path.write_text("\n".join(lines) + "\n")
    assert "OTHER-SVC" in path.read_text()
    done = kproxy("diff", RULES, path, "-o", "json")
    assert (done.returncode, json.loads(done.stdout)["alike"]) == (0, True), done.stdout
    # The texts do differ.
    assert kproxy("diff", RULES, path, "--text").returncode == 1


def test_a_difference_with_its_witness_and_both_traces(kproxy: Run, without_endpoint: Path) -> None:
    done = kproxy("diff", RULES, without_endpoint)
    assert (done.returncode, done.stderr) == (1, "")
    text = done.stdout
    assert "different: 1 difference\n" in text
    assert f"1. {WATCHERS} from anywhere\n" in text
    assert "A sends 1/2 to 10.244.0.36:8080 and 1/2 to 10.244.0.37:8080\n" in text
    assert "B sends all to 10.244.0.37:8080\n" in text
    assert "for example tcp " in text
    assert "KUBE-SVC-GCRHHKL6ZB4XAFBC 2" in text


def test_json(kproxy: Run, without_endpoint: Path) -> None:
    done = kproxy("diff", RULES, without_endpoint, "-o", "json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert list(answer)[2:] == [
        "alike",
        "a",
        "b",
        "differences",
        "unexamined",
        "unusual",
        "undecided",
        "remarks",
        "unseen",
    ]
    assert (answer["alike"], answer["a"], answer["undecided"]) == (False, str(RULES), [])
    (difference,) = answer["differences"]
    assert difference["destinations"] == [WATCHERS]
    witness = difference["witness"]
    assert witness["dst"] + "/" + witness["proto"] == WATCHERS
    for side, expected in (("a", {"10.244.0.36:8080", "10.244.0.37:8080"}), ("b", {"10.244.0.37:8080"})):
        outcomes = witness[side]
        assert sum(Fraction(item["probability"]) for item in outcomes) == 1
        assert {item["dst"] for item in outcomes} == expected
        assert all(item["path"][0]["table"] == "nat" for item in outcomes)


def test_a_witness_is_what_trace_says(kproxy: Run, without_endpoint: Path) -> None:
    witness = json.loads(kproxy("diff", RULES, without_endpoint, "-o", "json").stdout)["differences"][0]["witness"]
    for side, path in (("a", RULES), ("b", without_endpoint)):
        packet = ("--src", witness["src"], "--dst", witness["dst"], "--proto", witness["proto"], "--in", witness["in"])
        done = kproxy("trace", "--rules", path, "--local-ip", "192.168.49.2", *packet, "-o", "json")
        traced = {(item["probability"], item["dst"]) for item in json.loads(done.stdout)["outcomes"]}
        assert traced == {(item["probability"], item["dst"]) for item in witness[side]}


def test_text(kproxy: Run, without_endpoint: Path) -> None:
    done = kproxy("diff", RULES, without_endpoint, "--text")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"--- {RULES}", f"+++ {without_endpoint}"]
    assert [line[:1] for line in lines[2:]].count("-") == 4  # the jump, the chain and its two rules
    assert [line[:1] for line in lines[2:]].count("+") == 0
    same = kproxy("diff", RULES, RULES, "--text")
    assert (same.returncode, same.stdout) == (0, "")


def test_rules_against_manifests(kproxy: Run) -> None:
    config = ("--config", MINI / "config.yaml")
    for side in (f"manifests:{MINI / 'cluster.yaml'}@minikube", f"{MINI / 'cluster.yaml'}@minikube"):
        done = kproxy("diff", RULES, side, *config)
        assert done.returncode == 0, done.stdout + done.stderr
    done = kproxy("diff", RULES_V6, MINI / "cluster.yaml", *config)
    assert (done.returncode, "alike: every IPv6 packet is treated the same\n" in done.stdout) == (0, True)


def test_two_configurations_of_one_cluster(kproxy: Run, tmp_path: Path) -> None:
    other = tmp_path / "config.yaml"
    other.write_text((MINI / "config.yaml").read_text() + "\niptables:\n  masqueradeAll: true\n")
    assert "iptables:" not in (MINI / "config.yaml").read_text()
    side = f"manifests:{MINI / 'cluster.yaml'}"
    done = kproxy("diff", side, side, "--config-a", MINI / "config.yaml", "--config-b", other)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "A leaves the source as it is" in done.stdout
    assert "B rewrites the source (MASQUERADE --random-fully)" in done.stdout


def test_standard_input_and_the_other_family(kproxy: Run) -> None:
    assert kproxy("diff", "-", RULES_V6, stdin=RULES_V6.read_text()).returncode == 0
    done = kproxy("diff", RULES, RULES_V6)
    assert done.returncode == 2
    assert "IPv4" in done.stderr
    assert "IPv6" in done.stderr


@pytest.fixture
def filtered(tmp_path: Path) -> list[str]:
    """A host's rules of both families, the same where one of IPv6 is lost, and those of IPv4 alone."""
    drop = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s {}/128 -p tcp -m tcp --dport 22 -j DROP\n{}COMMIT\n"
    both = drop.format("2001:db8::7", "-A INPUT -s 2001:db8::8/128 -j DROP\n")
    texts = {
        "a.v4": drop.format("192.0.2.7", "").replace("/128", "/32"),
        "a.v6": both,
        "b.v6": drop.format("2001:db8::7", ""),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    four, six, lost = (str(tmp_path / name) for name in texts)
    return [f"{four},{six}", f"{four},{lost}", four]


def test_both_families_are_compared_where_both_are_there(kproxy: Run, filtered: list[str], tmp_path: Path) -> None:
    """Differences say their family; with -4 or -6 the headline says that the other one was not compared."""
    one, other, _ = filtered
    page = tmp_path / "diff.html"
    done = kproxy("diff", one, other, "--html", page)
    assert done.returncode == 1, done.stdout
    assert "different: 1 difference\n" in done.stdout
    assert "1. IPv6: " in done.stdout
    assert "2001:db8::8" in done.stdout
    assert re.findall(r"(\d+) rules?\n", done.stdout) == ["3", "2"], "the rules of both families"
    assert {each["conditions"].split(",")[0] for each in held_by(page)["compare"]["findings"]} == {"IPv6"}
    answer = json.loads(kproxy("diff", one, other, "-o", "json").stdout)
    assert (answer["alike"], answer["families"]) == (False, ["IPv4", "IPv6"])
    assert {each["family"] for each in answer["differences"]} == {"IPv6"}
    swapped = kproxy("diff", one, other, "--text")
    assert (swapped.returncode, "-A INPUT -s 2001:db8::8/128 -j DROP" in swapped.stdout) == (1, True)
    same = kproxy("diff", one, one)
    assert (same.returncode, "alike: every packet is treated the same\n" in same.stdout) == (0, True)
    for option, code, said in (
        ("-4", 0, "alike: every IPv4 packet is treated the same\n"),
        ("-6", 1, "different: 1 difference of IPv6 packets\n"),
    ):
        done = kproxy("diff", one, other, option, "--html", page)
        assert (done.returncode, said in done.stdout) == (code, True), done.stdout
        assert held_by(page)["compare"]["undecided"][-1]["reason"] == "they were not compared"
    stopped = json.loads(kproxy("diff", one, other, "--timeout", "0", "-o", "json").stdout)
    assert {part["family"] for part in stopped["parts"]} == {"IPv6"}, "IPv4 is alike before the clock is looked at"


def test_a_family_of_which_one_side_has_no_file_was_not_seen(kproxy: Run, filtered: list[str], tmp_path: Path) -> None:
    both, _, four = filtered
    page = tmp_path / "diff.html"
    for sides, host in (((both, four), four), ((four, both), four)):
        done = kproxy("diff", *sides, "-o", "json", "--html", page)
        answer = json.loads(done.stdout)
        assert (done.returncode, answer["alike"], answer["differences"]) == (2, False, [])
        assert answer["families"] == ["IPv4"]
        suspected = [(each["host"], each["family"], each["what"]) for each in answer["unseen"] if each["suspected"]]
        assert suspected == [(host, "IPv6", "nft iptables")]
        assert [each["where"] for each in held_by(page)["compare"]["undecided"]] == ["IPv6 packets"]
        text = kproxy("diff", *sides)
        assert "not decided: " in text.stdout
        assert f"not seen: nft iptables of {host} IPv6: there is no file of these rules" in text.stdout
        texts = kproxy("diff", *sides, "--text")
        assert (texts.returncode, texts.stdout, "not seen: nft iptables" in texts.stderr) == (2, "", True)
        assert kproxy("diff", *sides, "-4").returncode == 0
        assert kproxy("diff", *sides, "--assume", "complete").returncode == 1


def test_both_families_of_rendered_rules(kproxy: Run, tmp_path: Path) -> None:
    """Those that the cluster's Services have."""
    before, after = tmp_path / "before.yaml", tmp_path / "after.yaml"
    text = """\
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 10.96.0.80
  clusterIPs: [10.96.0.80, "fd00:10:96::80"]
  ipFamilies: [IPv4, IPv6]
  selector: {app: web}
  ports: [{port: 80}]
"""
    piece = """\
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%s, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: %s
ports: [{port: 8080}]
endpoints: [{addresses: ["%s"]}]
"""
    before.write_text(text + piece % ("a", "IPv4", "10.244.1.7") + piece % ("b", "IPv6", "fd00:10:244::7"))
    after.write_text(before.read_text().replace("fd00:10:244::7", "fd00:10:244::9"))
    for mode in ("iptables", "nftables"):
        done = kproxy("diff", f"{before}@n1", f"{after}@n1", "--mode", mode)
        assert (done.returncode, "[fd00:10:96::80]:80/tcp" in done.stdout) == (1, True), done.stdout
        assert kproxy("diff", f"{before}@n1", f"{after}@n1", "--mode", mode, "-4").returncode == 0


def test_a_host_narrows_the_question(kproxy: Run, tmp_path: Path) -> None:
    moved = tmp_path / "moved.save"
    moved.write_text(RULES.read_text().replace("--dport 32198", "--dport 32199"))
    host = tmp_path / "host.yaml"
    host.write_text("interfaces:\n- {name: lo, addresses: [127.0.0.1/8]}\n- {name: eth0, addresses: [192.0.2.1/24]}\n")
    witnesses = [
        {item["witness"]["dst"] for item in json.loads(kproxy("diff", *sides, "-o", "json").stdout)["differences"]}
        for sides in ((RULES, moved), (RULES, moved, "--host", host))
    ]
    own = {"192.0.2.1:32198", "192.0.2.1:32199"}
    assert not own & witnesses[0]
    assert own <= witnesses[1]
    assert all(dst in own or dst.startswith("127.") for dst in witnesses[1])


def test_what_cannot_be_decided_is_listed(kproxy: Run, tmp_path: Path) -> None:
    one, other = tmp_path / "one.save", tmp_path / "other.save"
    rules = "*filter\n:FORWARD ACCEPT [0:0]\n{}-A FORWARD -d 192.0.2.7/32 -j DROP\nCOMMIT\n"
    one.write_text(rules.format("-A FORWARD -m string --algo bm --string evil -j DROP\n"))
    other.write_text(rules.format(""))
    done = kproxy("diff", one, other)
    assert done.returncode == 2
    assert "not decided" in done.stdout
    assert "what the model cannot decide:" in done.stdout
    assert "string" in done.stdout
    assert json.loads(kproxy("diff", one, other, "-o", "json").stdout)["undecided"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp --dport eighty -j DROP\nCOMMIT\n", "line 3"),
        ("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j NOWHERE\nCOMMIT\n", "NOWHERE"),
        ("*filter\n:A - [0:0]\n:B - [0:0]\n:INPUT ACCEPT [0:0]\n-A INPUT -j A\n-A A -j B\n-A B -j A\nCOMMIT\n", "loop"),
        ("*wrong\nCOMMIT\n", "wrong"),
        ("", "no rules"),
    ],
)
def test_bad_rules(kproxy: Run, tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "bad.save"
    path.write_text(content)
    for sides in ((RULES, path), (path, RULES)):
        done = kproxy("diff", *sides)
        assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
        assert "bad.save" in done.stderr
        assert said in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-", "-"), "standard input"),
        ((RULES, "nowhere.save"), "nowhere.save"),
        ((RULES, "netns:kp-nowhere"), "kp-nowhere"),
        ((RULES, "netns:"), "name of a namespace"),
        ((RULES, "manifests:"), "a path expected"),
        ((f"{RULES},", RULES), "the name of a file expected before and after each comma"),
        ((RULES, ""), "the name of a file expected, not an empty one"),
        ((RULES, f"manifests:{MINI / 'cluster.yaml'}@nobody"), "nobody"),
        ((RULES, RULES, "--config", MINI / "config.yaml"), "manifests"),
        ((RULES, RULES, "--host", ""), "the name of a file expected, not an empty one"),
        ((RULES, MINI / "cluster.yaml", "--config", ""), "the name of a file expected, not an empty one"),
        ((RULES, MINI / "cluster.yaml", "--config-b", ""), "the name of a file expected, not an empty one"),
        ((RULES, RULES, "--config-a", ""), "go with manifests"),
        ((RULES, RULES, "--variant", "nft"), "No such option '--variant'"),
        ((RULES, RULES, "-6"), "IPv4"),
        ((RULES, RULES, "--text", "-o", "json"), "--text goes with neither"),
        ((RULES, RULES, "--text", "--html", "x.html"), "--text goes with neither"),
        ((RULES,), "Missing argument"),
    ],
)
def test_bad_usage(kproxy: Run, arguments: tuple[str | Path, ...], said: str) -> None:
    done = kproxy("diff", *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stdout
    assert said in done.stderr


def test_the_modes_of_one_cluster(kproxy: Run) -> None:
    config = ("--config", MINI / "config.yaml")
    side = f"{MINI / 'cluster.yaml'}@minikube"
    assert kproxy("diff", side, side, "--mode", "nftables", *config).returncode == 0
    done = kproxy("diff", side, side, "--mode-b", "nftables", *config, "-o", "json")
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    assert any("INVALID" in item["conditions"] and item["a"] == "drops it" for item in answer["differences"])
    # An option of one mode says something as long as one side is in that mode.
    note = "note: --feature random-fully says nothing in nftables mode: it is for iptables and ipvs mode\n"
    for option in ("--mode", "--mode-b"):
        told = kproxy("diff", side, side, option, "nftables", "--text", "--feature", "random-fully=off")
        assert (note in told.stderr) is (option == "--mode")
    wrong = kproxy("diff", RULES, side, "--mode-a", "nftables")
    assert (wrong.returncode, "--mode-a" in wrong.stderr) == (2, True)


def test_several_files_a_side(kproxy: Run, tmp_path: Path) -> None:
    ban = tmp_path / "ban.nft"
    ban.write_text(
        "table inet fw {\n\tchain in {\n\t\ttype filter hook input priority 10;\n\t\ttcp dport 22 drop\n\t}\n}\n"
    )
    assert kproxy("diff", f"{RULES},{ban}", f"{RULES},{ban}").returncode == 0
    other = tmp_path / "other.nft"
    other.write_text(ban.read_text().replace("tcp dport 22 drop", "tcp dport 23 accept\n\t\ttcp dport 22-23 drop"))
    done = kproxy("diff", f"{RULES},{ban}", f"{other},{RULES}", "-o", "json")
    assert (done.returncode, json.loads(done.stdout)["alike"]) == (0, True), done.stdout + done.stderr
    done = kproxy("diff", f"{RULES},{ban}", RULES, "-o", "json")
    assert done.returncode == 1
    causes = [item["cause"] for item in json.loads(done.stdout)["differences"]]
    expected = {
        "side": "a", "table": "inet fw", "chain": "in", "rule": 1, "text": "tcp dport 22 drop",
        "action": "`tcp dport 22 drop`", "sameButChance": False,
    }  # fmt: skip
    assert causes
    assert all(cause == expected for cause in causes)
    twice = kproxy("diff", f"{RULES},{RULES}", RULES)
    assert (twice.returncode, "one file expected" in twice.stderr) == (2, True)


def test_what_nft_prints_as_json_is_refused_with_what_to_do(kproxy: Run, tmp_path: Path) -> None:
    dump = tmp_path / "a.json"
    dump.write_text(json.dumps({"nftables": [{"metainfo": {"json_schema_version": 1}}]}))
    for one, other in ((dump, RULES), (RULES, dump)):
        done = kproxy("diff", one, other)
        assert done.returncode == 2
        assert done.stderr == f"error: {dump}: what nft list ruleset prints expected, not the JSON of nft -j\n"


def test_a_snapshot_is_what_its_nodes_had_or_what_its_objects_ask_for(kproxy: Run, tmp_path: Path) -> None:
    """As a directory and packed: each side in both ways."""
    snapshot = tmp_path / "shop"
    node = snapshot / "nodes/worker-1"
    (node / "kube-proxy").mkdir(parents=True)
    (snapshot / "objects").mkdir()
    (snapshot / "objects/all.yaml").write_bytes((EXAMPLES / "shop.yaml").read_bytes())
    (node / "iptables-save").write_bytes((EXAMPLES / "worker-1.save").read_bytes())
    (node / "kube-proxy/configz").write_bytes((EXAMPLES / "kube-proxy.yaml").read_bytes())
    packed = tmp_path / "shop.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(snapshot, "shop")
    config = ("--config-b", EXAMPLES / "kube-proxy.yaml")
    for path in (snapshot, packed):
        had, asked = f"{path}@worker-1", f"manifests:{path}@worker-1"
        for side in (had, path):
            assert kproxy("diff", side, EXAMPLES / "worker-1.save").returncode == 0
        done = kproxy("diff", asked, f"{EXAMPLES / 'shop.yaml'}@worker-1", *config)
        assert (done.returncode, done.stderr) == (0, ""), "the node's own configuration counts"
        done = kproxy("diff", had, asked)
        assert (done.returncode, done.stderr) == (1, "")
        assert "1. rule 3 of KUBE-SVC-67NZLRHBNDSAWJRO, jump to" in done.stdout
        assert kproxy("diff", asked, "--without", "svc/shop/web").returncode == 1
        for side, said in (
            (f"{path}@worker-3", f"{path}: no files of node worker-3: there is worker-1"),
            (f"manifests:{path}@worker-3", "worker-3"),
        ):
            done = kproxy("diff", side, had)
            assert (done.returncode, done.stdout) == (2, "")
            assert said in done.stderr
    (node / "iptables-save").unlink()
    done = kproxy("diff", f"{snapshot}@worker-1", RULES)
    there = f"manifests:{snapshot}@worker-1"
    message = f"error: {snapshot}: no rules of node worker-1; those that kube-proxy would program there are {there}\n"
    assert (done.returncode, done.stderr) == (2, message)


def test_an_archive_that_holds_something_else_is_no_snapshot(kproxy: Run, tmp_path: Path) -> None:
    packed = tmp_path / "cluster.tar.gz"
    packed.write_bytes(gzip.compress(b"*filter\nCOMMIT\n"))
    done = kproxy("diff", packed, RULES)
    assert (done.returncode, done.stderr) == (2, f"error: {packed}: a damaged archive: truncated header\n")
    done = kproxy("diff", f"{packed},{RULES}", RULES)
    assert (done.returncode, done.stderr) == (2, f"error: {packed}: a gzip archive: text expected, and no snapshot\n")


def test_one_removed_rule_is_one_finding(kproxy: Run, tmp_path: Path) -> None:
    ban = tmp_path / "ban.nft"
    chains = "\tchain ban {\n\t\tip saddr 192.0.2.1 drop\n\t\tip daddr 10.0.0.1 reject\n\t}\n"
    base = "\tchain in {\n\t\ttype filter hook input priority 10;\n\t\ttcp dport { 22, 2222 } jump ban\n\t}\n"
    ban.write_text(f"table ip fw {{\n{chains}{base}}}\n")
    without = tmp_path / "without.nft"
    without.write_text(ban.read_text().replace("\t\ttcp dport { 22, 2222 } jump ban\n", ""))
    done = kproxy("diff", ban, without)
    assert done.returncode == 1
    assert "different: 1 difference\n" in done.stdout
    assert "1. rule 1 of in, jump to ban, is only in A: 2 destinations, as:\n" in done.stdout


def test_rules_of_both_variants_a_side(kproxy: Run, tmp_path: Path) -> None:
    """A chain of the same name in both variants: the cause is found in the one that the packet met."""
    chains = ":INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"

    def save(name: str, head: str, *rules: str) -> str:
        text = f"# Generated by iptables-save {head} on Sat\n*filter\n{chains}"
        (tmp_path / name).write_text(text + "".join(f"-A INPUT -p tcp --dport {rule}\n" for rule in rules) + "COMMIT\n")
        return name

    nft, legacy = "v1.8.9 (nf_tables)", "v1.8.9"
    one = save("one", nft, "1 -j ACCEPT", "2 -j ACCEPT", "22 -j DROP")
    other = save("other", nft, "1 -j ACCEPT", "2 -j ACCEPT")
    held = save("held", legacy, "80 -j DROP")
    for sides in ((f"{one},{held}", f"{other},{held}"), (f"{held},{one}", f"{held},{other}")):
        done = kproxy("diff", *sides)
        assert (done.returncode, done.stderr) == (1, "")
        assert "1. rule 3 of INPUT, `-j DROP`, is only in A: 1 destination, as:" in done.stdout
    adds = [save(f"adds{port}", legacy, f"{port} -j SET --add-set foo src") for port in (443, 444)]
    done = kproxy("diff", *(f"{other},{each}" for each in adds))
    assert done.returncode == 1
    assert "not decided" not in done.stdout
    assert "rule 1 of INPUT, `-j SET --add-set foo src`, is changed in B" in done.stdout
    for side, port in (("A", 443), ("B", 444)):
        assert f"     {side} has -A INPUT -p tcp --dport {port} -j SET --add-set foo src\n" in done.stdout


def test_without_compares_with_what_is_left(kproxy: Run) -> None:
    shop = ROOT / "docs" / "examples" / "shop.yaml"
    side, config = f"{shop}@worker-1", ("--config", shop.with_name("kube-proxy.yaml"))
    for ref in ("pod/shop/web-2", "10.244.2.12"):
        done = kproxy("diff", side, *config, "--without", ref)
        assert (done.returncode, done.stderr) == (1, "")
        assert f"B  {side} without {ref}  52 rules" in done.stdout
        assert "KUBE-SEP-MOGHLOVWQYX4X6CX (shop/web:http -> 10.244.2.12:8080), is only in A" in done.stdout
    done = kproxy("diff", side, *config, "--without", "node/worker-2", "--without", "svc/shop/web", "-o", "json")
    shown = json.dumps(json.loads(done.stdout)["differences"])
    assert ("10.96.0.10 " in shown, "10.96.0.80:80/tcp" in shown, "10.96.0.90:80" in shown) == (True, True, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cluster.yaml@n1", "--without", "node/x"), "error: --without node/x: there is no node 'x'\n"),
        (("cluster.yaml@n1", "--without", "x"), "the address of an endpoint expected"),
        (("cluster.yaml@n1", "--without", "pod/a/b"), "error: --without pod/a/b: no endpoint is a/b\n"),
        (("cluster.yaml@n1",), "Missing argument 'B'"),
        ((RULES, "--without", "node/x"), "--without goes with a B that is rendered"),
    ],
)
def test_without_names_what_is_there(
    kproxy: Run, tmp_path: Path, arguments: tuple[str | Path, ...], message: str
) -> None:
    (tmp_path / "cluster.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
    done = kproxy("diff", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("note:") <= 1, "what both sides have is said once"


def test_what_both_sides_name_is_read_once(kproxy: Run) -> None:
    """Also standard input, which ends after the first time."""
    shop = (EXAMPLES / "shop.yaml").read_text()
    for more in (
        ("--without", "svc/shop/web"),
        ("manifests:-@worker-2",),
        ("manifests:-@worker-1", "--mode-b", "nftables"),
    ):
        done = kproxy("diff", "manifests:-@worker-1", *more, stdin=shop)
        assert done.returncode in (0, 1), done.stderr
        assert done.stderr.count("note:") == 1, "and told of once"


@pytest.mark.parametrize(
    ("second", "more", "of_both"),
    [
        ("no-endpoints/cluster.yaml", (), True),
        ("minikube/cluster.yaml", ("--without", "svc/default/crd-array-watchers"), False),
    ],
)
def test_the_page_has_the_map_of_sides_whose_objects_are_known(
    kproxy: Run, tmp_path: Path, second: str, more: tuple[str, ...], of_both: bool
) -> None:
    page = tmp_path / "diff.html"
    done = kproxy("diff", GOLDEN / "minikube/cluster.yaml", GOLDEN / second, *more, "--html", page)
    assert done.returncode == 1
    held = held_by(page)
    assert "svc/default/crd-array-watchers" in {each["id"] for each in held["map"]["services"]}
    assert [each["source"] for each in held["compare"]["sides"]] == ["", "against" if of_both else ""]
    assert list(held.get("maps", ())) == (["against"] if of_both else [])
    assert any("svc/default/crd-array-watchers" in each["services"] for each in held["compare"]["findings"])


def test_the_page_of_nodes_of_snapshots_has_their_maps(kproxy: Run, tmp_path: Path) -> None:
    """As clients on the node have them; findings are the node's, and about the Services of both."""
    before = write_files(tmp_path / "before", vxlan_cluster())
    after = write_files(tmp_path / "after", damaged_files())
    page = tmp_path / "diff.html"
    assert kproxy("diff", f"{before}@n1", f"{after}@n1", "--html", page).returncode == 1
    held = held_by(page)
    chances = [
        {edge["target"]: edge["chance"] for edge in each["edges"]} for each in (held["map"], held["maps"]["against"])
    ]
    assert chances == [
        {"pod/shop/web-0": "1/2", "pod/shop/web-1": "1/2"},
        {"pod/shop/web-0": "1/2", "pod/shop/web-1": "0/1", "outside/10.244.2.77": "1/2"},
    ]
    assert {(*each["nodes"], *each["services"]) for each in held["compare"]["findings"]} == {("n1", "svc/shop/web")}
    assert kproxy("diff", f"{before}@n1", RULES, "--html", page).returncode == 1
    held = held_by(page)
    assert held["map"]["view"] == "n1"
    assert "maps" not in held, "of rules alone nothing is known beside them"


def test_a_comparison_ends_at_its_bound_and_says_how_far_it_came(kproxy: Run, without_endpoint: Path) -> None:
    for option, said in (("--timeout=0", "0 seconds are over (--timeout)"), ("--memory=16", "more than 16 MiB")):
        done = kproxy("diff", RULES, without_endpoint, option, "-o", "json")
        found = json.loads(done.stdout)
        assert (done.returncode, found["alike"], found["differences"]) == (2, False, []), done.stdout
        assert said in found["stopped"]
        assert {part["result"] for part in found["parts"]} <= {"alike", "different", "not compared"}
        assert len(found["parts"]) == 12
        done = kproxy("diff", RULES, without_endpoint, option)
        assert (done.returncode, done.stderr) == (2, "")
        assert "not compared to the end: " in done.stdout
        assert "not compared: " in done.stdout
        assert "alike: every" not in done.stdout


def test_the_bound_is_not_met_by_usual_rules(kproxy: Run, without_endpoint: Path) -> None:
    done = kproxy("diff", RULES, without_endpoint, "--timeout", "500", "-o", "json")
    assert (done.returncode, "stopped" in json.loads(done.stdout)) == (1, False)
    assert kproxy("diff", RULES, RULES, "--timeout", "nan").returncode == 2
