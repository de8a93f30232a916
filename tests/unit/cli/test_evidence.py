"""What was not seen is part of every answer: the lines, `unseen` in JSON, `--assume`, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import Run
from tests.support.evidence import IPVS, NAT, UNLED, WHOLE
from tests.support.paths import ROOT

DNS = ("--local-ip", "172.30.0.11", "--src", "10.244.1.21", "--dst", "10.96.0.10:53", "--proto", "udp")
CONFIG = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\n"
SLICE = """apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.1.2]}]
"""
CLUSTER = (
    """apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.80, selector: {app: web}, ports: [{port: 80}]}
---
"""
    + SLICE
    + """---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 172.30.0.11}]}
"""
)
MARKS = """*mangle
:PREROUTING ACCEPT [0:0]
-A PREROUTING -j CONNMARK --restore-mark
COMMIT
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -m mark --mark 0x1 -j DROP
COMMIT
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    texts = {"nat.save": NAT, "whole.save": WHOLE, "unled.save": UNLED, "ipvs.save": IPVS, "config.yaml": CONFIG}
    for name, text in {**texts, "cluster.yaml": CLUSTER, "marks.save": MARKS}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_trace_says_what_was_not_seen(kproxy: Run, files: Path) -> None:
    done = kproxy("trace", "--rules", files / "nat.save", *DNS)
    assert done.returncode == 0
    assert "100%  INDETERMINATE  indeterminate: it depends on what was not seen: filter table" in done.stdout
    assert "not seen: filter table" in done.stdout
    assert "not looked at, and taken as usual: mangle table" in done.stdout
    answer = json.loads(kproxy("trace", "--rules", files / "nat.save", *DNS, "-o", "json").stdout)
    first = next(each for each in answer["unseen"] if each["suspected"])
    assert list(first) == ["host", "family", "what", "why", "suspected"]
    assert (first["family"], first["what"]) == ("IPv4", "filter table")
    (only,) = answer["outcomes"]
    assert {(each["verdict"], each["dst"]) for each in only["possible"]} >= {
        ("ACCEPT", "10.244.1.2:53"), ("DROP", "10.244.2.2:53"),
    }  # fmt: skip


def test_what_is_assumed_is_not_open(kproxy: Run, files: Path) -> None:
    for assumed in ("filter table=empty", "complete"):
        done = kproxy("trace", "--rules", files / "nat.save", *DNS, "--assume", assumed, "--expect", "ACCEPT")
        assert done.returncode == 0, done.stdout
        assert "not seen" not in done.stdout
    wrong = kproxy("trace", "--rules", files / "nat.save", *DNS, "--assume", "the moon=empty")
    assert wrong.returncode == 2
    assert "filter table, nat table" in wrong.stderr


@pytest.mark.parametrize(
    ("file", "verdict", "code"),
    [("whole", "ACCEPT", 1), ("nat", "ACCEPT", 2), ("nat", "DROP", 2), ("unled", "DROP", 2)],
)
def test_an_expected_verdict(kproxy: Run, files: Path, file: str, verdict: str, code: int) -> None:
    assert kproxy("trace", "--rules", files / f"{file}.save", *DNS, "--expect", verdict).returncode == code


def test_packets_have_it_on_every_line(kproxy: Run, files: Path) -> None:
    lines = "".join(json.dumps({"src": "10.244.1.21", "dst": dst}) + "\n" for dst in ("10.96.0.10:53", "10.0.0.1:1"))
    done = kproxy("trace", "--rules", files / "nat.save", "--packets", "-", stdin=lines)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [any(each["suspected"] for each in answer["unseen"]) for answer in answers] == [True, True]


@pytest.mark.parametrize(
    ("one", "other", "code"),
    [
        ("nat", "nat", 0), ("nat", "whole", 2), ("whole", "nat", 2), ("unled", "unled", 0), ("unled", "nat", 2),
        ("ipvs", "ipvs", 2), ("whole", "whole", 0), ("nat", "other", 1), ("unled", "unled-other", 1),
    ],
)  # fmt: skip
def test_what_one_side_lacks_cannot_be_told(kproxy: Run, files: Path, one: str, other: str, code: int) -> None:
    for name, text in (("other", NAT), ("unled-other", UNLED)):
        (files / f"{name}.save").write_text(
            text.replace("--to-destination 10.244.2.2:53", "--to-destination 10.9.9.9:53")
        )
    done = kproxy("diff", files / f"{one}.save", files / f"{other}.save", "-o", "json")
    assert done.returncode == code, done.stdout
    answer = json.loads(done.stdout)
    assert answer["alike"] is (code == 0)
    assert isinstance(answer["unseen"], list)


def test_a_connection_mark_is_open_unless_it_is_given(kproxy: Run, files: Path) -> None:
    asked = (
        "trace",
        "--rules",
        files / "marks.save",
        "--src",
        "10.0.0.1:1",
        "--dst",
        "10.0.0.2:2",
        "--local-ip",
        "10.9.9.9",
    )
    for more, verdict in (((), "INDETERMINATE"), (("--ctmark", "1"), "DROP"), (("--ctmark", "0x2"), "ACCEPT")):
        answer = json.loads(kproxy(*asked, "--ctstate", "ESTABLISHED", *more, "-o", "json").stdout)
        assert [each["verdict"] for each in answer["outcomes"]] == [verdict]
        assert any(each["what"] == "connection mark" for each in answer["unseen"]) is (not more)
    new = json.loads(kproxy(*asked, "-o", "json").stdout)
    assert [each["verdict"] for each in new["outcomes"]] == ["ACCEPT"]
    assert all(each["what"] != "connection mark" for each in new["unseen"])


def test_migrate_takes_no_ipvs_node_for_another(kproxy: Run, files: Path) -> None:
    cluster = ("-f", files / "cluster.yaml", "--config", files / "config.yaml")
    switch = kproxy("migrate", *cluster, "-o", "json")
    assert switch.returncode == 1
    report = json.loads(switch.stdout)
    assert report["from"] == "ipvs"
    assert "ipvs-leftovers" in {each["reason"] for each in report["findings"]}
    dump = kproxy("migrate", "-f", files / "cluster.yaml", "--rules", files / "ipvs.save", "-4")
    assert (dump.returncode, dump.stdout) == (2, "")
    assert "give --from" in dump.stderr


GIT = """apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30080}]
"""
LOCAL = GIT.replace("spec:\n", "spec:\n  externalTrafficPolicy: Local\n  sessionAffinity: ClientIP\n")
GIVEN = ("--allocate", "10.96.0.0/16")
INVENTED = (*GIVEN, "--assume-endpoints", "2")


@pytest.mark.parametrize(
    ("other", "more", "code"),
    [
        (LOCAL, (), 2), (LOCAL, GIVEN, 2), (LOCAL, INVENTED, 1), (GIT, (), 2), (GIT, INVENTED, 0),
        (GIT, ("--assume", "complete"), 0),
    ],
)  # fmt: skip
def test_manifests_from_git_tell_no_rules(
    kproxy: Run, tmp_path: Path, other: str, more: tuple[str, ...], code: int
) -> None:
    """They have neither cluster IPs nor endpoints: without any, every change of a Service looks alike."""
    sides = []
    for name, text in (("old", GIT), ("new", other)):
        (tmp_path / f"{name}.yaml").write_text(text)
        sides.append(f"{tmp_path / name}.yaml@n1")
    done = kproxy("diff", *sides, *more, "-o", "json")
    assert done.returncode == code, done.stdout
    answer = json.loads(done.stdout)
    assert answer["alike"] is (code == 0)
    named = {each["what"] for each in answer["unseen"] if "shop/web" in each["why"]}
    expected = {(): {"cluster IPs", "endpoints"}, GIVEN: {"endpoints"}}
    assert named == expected.get(more, set())
    if more == INVENTED:
        assert "assumed: 2 endpoints each, spread over the nodes, of 1 Service" in done.stderr
    invented = "--assume-endpoints" in more
    assert ("no EndpointSlices" in done.stderr, "or say --assume-endpoints N" in done.stderr) == (not invented,) * 2


def test_a_packet_to_what_git_does_not_tell(kproxy: Run, tmp_path: Path) -> None:
    file = tmp_path / "git.yaml"
    file.write_text(GIT)
    asked = ("trace", "-f", file, "--node", "n1", "--src", "10.0.0.1", "-o", "json")

    def verdicts(*more: str) -> list[str]:
        return [each["verdict"] for each in json.loads(kproxy(*asked, *more).stdout)["outcomes"]]

    for mode in ("iptables", "nftables"):
        assert verdicts("--dst", "10.96.0.80:80", "--mode", mode) == ["INDETERMINATE"]
        assert verdicts("--to", "svc/shop/web:http", *GIVEN, "--mode", mode) == ["INDETERMINATE"]
        assert verdicts("--to", "svc/shop/web:http", *INVENTED, "--mode", mode) == ["ACCEPT", "ACCEPT"]
    switch = kproxy("migrate", "-f", file, "--node", "n1", "--assume", "endpoints=empty", "-o", "json")
    assert json.loads(switch.stdout)["undecided"]
    told = json.loads(kproxy("explain", "-f", file, "--node", "n1", "--service", "shop/web", "-o", "json").stdout)
    assert {each["what"] for each in told["unseen"] if each["suspected"]} == {"cluster IPs", "endpoints"}


NODE = """apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDR: 10.244.1.0/24}
status: {addresses: [{type: InternalIP, address: 172.30.0.11}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {type: TYPE, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
"""


@pytest.mark.parametrize(
    ("kind", "more", "what"),
    [
        # the Service has a node port that it does not serve before it has a cluster IP
        ("NodePort", ", nodePort: 31234}]", "cluster IPs"),
        # an API server allocates the node port
        ("NodePort", "}], clusterIP: 10.96.0.80", "node ports"),
        ("LoadBalancer", "}], clusterIP: 10.96.0.80", "node ports"),
    ],
)
def test_node_ports_of_manifests_from_git(kproxy: Run, tmp_path: Path, kind: str, more: str, what: str) -> None:
    path, other = tmp_path / "git.yaml", tmp_path / "cluster-ip.yaml"
    path.write_text(NODE.replace("TYPE", kind).replace("}]", more))
    packet = ("--src", "203.0.113.9", "--dst", "172.30.0.11:31234", "--expect", "ACCEPT", "-o", "json")
    done = kproxy("trace", "-f", path, "--assume-endpoints", "1", *packet)
    assert done.returncode == 2
    assert what in [each["what"] for each in json.loads(done.stdout)["unseen"] if each["suspected"]]
    other.write_text(path.read_text().replace(kind, "ClusterIP").replace(", nodePort: 31234", ""))
    assert kproxy("diff", path, other, *GIVEN, "--assume-endpoints", "1").returncode == 1
    assert kproxy("diff", path, path, *GIVEN, "--assume-endpoints", "1").returncode == 0


DUAL = (
    """apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDRs: [10.244.1.0/24, "fd00:1::/64"]}
status: {addresses: [{type: InternalIP, address: 172.30.0.11}, {type: InternalIP, address: "fd00::11"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIPs: [10.96.0.80, "fd00:96::80"]
  clusterIP: 10.96.0.80
  ipFamilies: [IPv4, IPv6]
  selector: {app: web}
  ports: [{port: 80}]
---
"""
    + SLICE
    + """---
apiVersion: v1
kind: Service
metadata: {name: kubernetes, namespace: default}
spec: {clusterIP: 10.96.0.1, ports: [{port: 443}]}
---
apiVersion: v1
kind: Service
metadata: {name: peers, namespace: shop}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80}]}
"""
)


def test_services_without_slices_of_one_family_or_without_a_selector(kproxy: Run, tmp_path: Path) -> None:
    """In a cluster they have slices: `kubernetes` the API server's, `web` one of each family, if only an empty one. So
    a file without them does not say that they refuse. Of a headless Service kube-proxy makes no rules."""
    file = tmp_path / "dual.yaml"
    file.write_text(DUAL)

    def asked(dst: str, *more: str) -> tuple[set[str], dict[str, str]]:
        src = "fd00:1::9" if "[" in dst else "10.244.1.9"
        done = kproxy("trace", "-f", file, "--node", "n1", "--src", src, "--dst", dst, "-o", "json", *more)
        answer = json.loads(done.stdout)
        gaps = {each["why"]: each["family"] for each in answer["unseen"] if each["what"] == "endpoints"}
        return {each["verdict"] for each in answer["outcomes"]}, gaps

    alone = {"Service has no EndpointSlice: default/kubernetes": ""}
    of_one = {"Service has a selector and no EndpointSlice of IPv6: shop/web (--assume-endpoints N)": "IPv6"}
    for mode in ("iptables", "nftables"):
        assert asked("10.96.0.80:80", "--mode", mode) == ({"ACCEPT"}, alone)
        assert asked("10.96.0.1:443", "--mode", mode) == ({"INDETERMINATE"}, alone)
        assert asked("[fd00:96::80]:80", "--mode", mode) == ({"INDETERMINATE"}, {**alone, **of_one})
    assert asked("[fd00:96::80]:80", "--assume-endpoints", "1") == ({"ACCEPT"}, alone)
    assert asked("10.96.0.1:443", "--assume", "endpoints=empty") == ({"REJECT"}, {})
    # What an API server listed, with slices of the namespace, has all that there is.
    file.write_text(DUAL.replace("{name: web, namespace: shop}", "{name: web, namespace: shop, uid: a}"))
    assert asked("[fd00:96::80]:80") == ({"REJECT"}, alone)


def test_a_configuration_that_nobody_gave(kproxy: Run, tmp_path: Path) -> None:
    """What is masqueraded hangs on it. diff takes that of the other side, so that it is no difference; but a side's own
    option counts."""
    shop, config = ROOT / "docs/examples/shop.yaml", ROOT / "docs/examples/kube-proxy.yaml"
    asked = ("trace", "-f", shop, "--node", "worker-1", "--src", "203.0.113.9", "--dst", "10.96.0.80:80")
    for more, unknown in (((), True), (("--config", config), False)):
        gaps = json.loads(kproxy(*asked, *more, "-o", "json").stdout)["unseen"]
        (found,) = [each for each in gaps if each["what"] == "kube-proxy configuration"] or [None]
        assert (found is not None) is unknown
        assert found is None or found["suspected"] is False
    assert "taken as usual: kube-proxy configuration" in kproxy(*asked).stdout
    for mode in ("iptables", "nftables"):
        node = tmp_path / f"node.{mode}"
        rendered = kproxy("render", "-f", shop, "--node", "worker-1", "--config", config, "--mode", mode)
        node.write_text(rendered.stdout)
        for sides in ((f"{shop}@worker-1", node), (node, f"{shop}@worker-1")):
            done = kproxy("diff", *sides, "-o", "json")
            assert done.returncode == 0, done.stdout
            assert "no kube-proxy configuration; it is taken to be that of" in done.stderr
            assert "kube-proxy configuration" in [each["what"] for each in json.loads(done.stdout)["unseen"]]
    assert kproxy("diff", f"{shop}@worker-1", f"{shop}@worker-1", "--config-b", config).returncode == 1


SETS = """*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
-A FORWARD -m set --match-set X dst -j DROP
-A FORWARD -m set ! --match-set X dst --packets-gt 3 -j RETURN
COMMIT
"""


def test_an_assumption_decides_the_answer(kproxy: Run, files: Path) -> None:
    """Of a set that is empty, and of a connection that has no mark, nothing is open."""
    (files / "sets.save").write_text(SETS)
    packet = ("--src", "10.0.0.1:1", "--dst", "10.0.0.2:2", "--local-ip", "10.9.9.9", "--ctstate", "ESTABLISHED")
    for name, thing in (("sets", "ipset X"), ("marks", "connection mark")):
        asked = ("trace", "--rules", files / f"{name}.save", *packet, "--expect", "ACCEPT")
        assert kproxy(*asked).returncode == 2
        assert kproxy(*asked, "--assume", f"{thing}=empty").returncode == 0
        assert kproxy(*asked, "--assume", "complete").returncode == 0


def test_a_hint_names_the_mark_that_is_missing(kproxy: Run, files: Path) -> None:
    """The packet's own mark is 0 where no option gives it: a rule has restored the connection's."""
    packet = ("--src", "10.0.0.1:1", "--dst", "10.0.0.2:2", "--local-ip", "10.9.9.9", "--ctstate", "ESTABLISHED")
    told = kproxy("trace", "--rules", files / "marks.save", *packet).stdout
    assert "would settle it: --ctmark MARK" in told
    assert "--mark" not in told.partition("rules:")[0]


def test_explain_begins_with_what_was_not_seen(kproxy: Run, tmp_path: Path) -> None:
    file = tmp_path / "dual.yaml"
    file.write_text(DUAL)
    asked = ("explain", "-f", file, "--node", "n1", "--service")
    first, second, *rest = kproxy(*asked, "default/kubernetes").stdout.splitlines()
    assert first.endswith("IPv4; not certain: endpoints not seen")
    assert "not seen: endpoints of n1: Service has no EndpointSlice: default/kubernetes" in second
    assert any("its endpoints were not seen: what becomes of traffic is open" in line for line in rest)
    assert "it has no endpoints" not in "\n".join(rest)
    # That of another Service, or of another family, is nothing of this answer's.
    assert "not seen" not in kproxy(*asked, "shop/web").stdout
    assert "not certain: endpoints not seen" in kproxy(*asked, "shop/web", "-6").stdout


@pytest.mark.parametrize("target", ["DROP", "REJECT"])
def test_a_loss_on_which_all_possibilities_agree_is_certain(kproxy: Run, tmp_path: Path, target: str) -> None:
    """Where the unseen nat table sends the packet is open; that the filter table refuses it is not."""
    file = tmp_path / "filter.save"
    hooks = "".join(f":{hook} ACCEPT [0:0]\n" for hook in ("INPUT", "FORWARD", "OUTPUT"))
    rules = "-A KUBE-PROXY-FIREWALL -s 192.0.2.9/32 -j DROP\n"
    rules += "".join(f"-A {hook} -j {target}\n" for hook in ("INPUT", "FORWARD"))
    file.write_text(f"*filter\n{hooks}:KUBE-PROXY-FIREWALL - [0:0]\n-A FORWARD -j KUBE-PROXY-FIREWALL\n{rules}COMMIT\n")
    asked = ("trace", "--rules", file, "--src", "10.244.1.3", "--dst", "10.96.0.10:53", "--local-ip", "172.30.0.11")
    (only,) = json.loads(kproxy(*asked, "-o", "json").stdout)["outcomes"]
    assert (only["verdict"], only["probability"]) == (target, "1/1")
    assert {each["verdict"] for each in only["possible"]} == {target}
    assert len({each["dst"] for each in only["possible"]}) > 1
    assert kproxy(*asked, "--expect", target).returncode == 0
    file.write_text(file.read_text().replace(f"-A INPUT -j {target}\n", ""))
    assert kproxy(*asked, "--expect", target).returncode == 2


def test_a_warning_of_one_family_opens_that_family(kproxy: Run, tmp_path: Path) -> None:
    file = tmp_path / "both.save"
    file.write_text(WHOLE + "# Warning: ip6tables-legacy tables present, use ip6tables-legacy-save to see them\n")
    assert kproxy("trace", "--rules", file, *DNS, "--expect", "DROP").returncode == 1  # half of it is ACCEPT
    file.write_text(file.read_text().replace("ip6tables", "iptables"))
    assert kproxy("trace", "--rules", file, *DNS, "--expect", "DROP").returncode == 2


def test_the_hint_is_the_option_that_shows_the_endpoints(kproxy: Run, tmp_path: Path) -> None:
    """What hangs on them is settled with them: no assumption about a match is asked for."""
    path = tmp_path / "git.yaml"
    path.write_text(NODE.replace("TYPE", "ClusterIP"))
    packet = ("--src", "10.244.0.9", "--to", "svc/shop/web", "--allocate", "10.96.0.0/16", "-o", "json")
    done = kproxy("trace", "-f", path, *packet)
    (outcome,) = json.loads(done.stdout)["outcomes"]
    assert outcome["hints"] == ["--assume-endpoints N, or input that shows it"]
    (settled,) = json.loads(kproxy("trace", "-f", path, "--assume-endpoints", "1", *packet).stdout)["outcomes"]
    assert settled["verdict"] == "ACCEPT"


NODE_PORT = CLUSTER.replace("ports: [{port: 80}]", "type: NodePort, ports: [{port: 80, nodePort: 30080}]", 1)
NODELESS = NODE_PORT.partition("---\napiVersion: v1\nkind: Node")[0]
UNADDRESSED = NODE_PORT.replace("[{type: InternalIP, address: 172.30.0.11}]", "[]")
PRIMARY = ("iptables", "nodePortAddresses: [primary]")


@pytest.mark.parametrize(
    ("text", "mode", "more", "is_open"),
    [
        (NODELESS, "nftables", "", True),
        (UNADDRESSED, "nftables", "", True),
        (NODELESS, *PRIMARY, True),
        (NODELESS, "nftables", "nodePortAddresses: [172.30.0.0/16]", True),
        (NODELESS, "iptables", "nodePortAddresses: [172.30.0.0/16]", False),
        (NODELESS, "nftables", "nodePortAddresses: [0.0.0.0/0]", False),
        (NODELESS, "iptables", "", False),
        (NODE_PORT, "nftables", "", False),
        (NODE_PORT, *PRIMARY, False),
    ],
)
def test_where_node_ports_answer_on_a_node_without_addresses(
    kproxy: Run, tmp_path: Path, text: str, mode: str, more: str, is_open: bool
) -> None:
    """They answer at some of its addresses, and nobody knows at which: open to them, and certain to all others."""
    rules, config = tmp_path / "cluster.yaml", tmp_path / "config.yaml"
    rules.write_text(text)
    config.write_text(CONFIG.replace("mode: ipvs", f"mode: {mode}\nclusterCIDR: 10.244.0.0/16\n{more}"))
    common = ("-f", rules, "--config", config, "--node", "n1")
    own = ("--local-ip", "172.30.0.11", "--local-ip", "10.244.1.1", "--src", "203.0.113.7:4000")
    asked = {}
    for to in ("172.30.0.11:30080", "10.244.1.1:30080", "172.30.0.11:30081", "10.96.0.80:80", "192.0.2.1:30080"):
        answer = json.loads(kproxy("trace", *common, *own, "--dst", to, "-o", "json").stdout)
        asked[to] = {each["verdict"] for each in answer["outcomes"]} == {"INDETERMINATE"}
        told = [each["what"] for each in answer["unseen"] if each["suspected"]]
        assert told == (["node addresses"] if is_open else []), to
    assert [to for to, answered in asked.items() if answered] == (
        ["172.30.0.11:30080", "10.244.1.1:30080"] if is_open else []
    )
    decided = kproxy("trace", *common, *own, "--dst", "172.30.0.11:30080", "--assume", "node addresses=empty")
    assert "INDETERMINATE" not in decided.stdout
    explained = kproxy("explain", *common, "--service", "shop/web")
    assert ("not certain: node addresses not seen" in explained.stdout) is is_open


def test_a_node_without_addresses_is_not_certain_to_differ(kproxy: Run, tmp_path: Path) -> None:
    """But its other traffic is; and beside another one without any they are taken to be the same on both."""
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.replace("mode: ipvs", "mode: nftables\nclusterCIDR: 10.244.0.0/16"))
    local = NODELESS.replace("type: NodePort", "type: NodePort, externalTrafficPolicy: Local")
    moved = NODELESS.replace("10.244.1.2", "10.244.1.9")
    texts = {"bare": NODELESS, "known": NODE_PORT, "moved": moved, "local": local}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    for one, other, code, said in (
        ("bare", "known", 2, "not seen: node addresses of "),
        ("moved", "known", 1, "10.96.0.80:80/tcp from anywhere"),
        ("bare", "bare", 0, "seen of neither side, and taken to be the same on both: node addresses"),
        ("bare", "local", 1, "port 30080/tcp"),
    ):
        sides = (f"{tmp_path / one}.yaml@n1", f"{tmp_path / other}.yaml@n1")
        done = kproxy("diff", *(sides if code else sides[::-1]), "--config", config)
        assert (done.returncode, said in done.stdout) == (code, True), done.stdout
