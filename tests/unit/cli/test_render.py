"""`kproxy render`: its formats, its choice of node, and what it says about bad input."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pytest

from kproxy.services import IPFamily
from tests.support.cli import KPROXY, Run
from tests.support.recorded import CLUSTERS, IPVS_CLUSTERS, MINIKUBE, render, render_ipvs, render_nftables
from tests.support.waiting import PATIENCE

MINI = ("-f", MINIKUBE / "cluster.yaml", "--config", MINIKUBE / "config.yaml")

SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.7, ports: [{port: 80}]}
"""


def test_save_is_the_default(kproxy: Run) -> None:
    done = kproxy("render", *MINI)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == render(MINIKUBE, IPFamily.IPV4).save_text
    assert kproxy("render", *MINI, "--format", "save", "-4").stdout == done.stdout


NFT = (
    "-f", CLUSTERS[0] / "cluster.yaml", "-f", CLUSTERS[0] / "service-cidr.yaml",
    "--config", CLUSTERS[0] / "config.nftables.yaml", "--node", "node-0",
)  # fmt: skip


def test_nftables_mode(kproxy: Run) -> None:
    done = kproxy("render", *NFT, "-4", "--format", "restore")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == render_nftables(CLUSTERS[0], IPFamily.IPV4).restore_text
    assert kproxy("render", *NFT, "-4", "--mode", "iptables", "--format", "restore").stdout.startswith("*filter\n")
    other = kproxy("render", *MINI, "--mode", "nftables", "--format", "restore")
    assert other.stdout.startswith("add table ip kube-proxy ")
    assert "add element ip kube-proxy nodeport-ips { 192.168.49.2 }\n" in other.stdout


def test_nftables_mode_saves_what_nft_lists(kproxy: Run, tmp_path: Path) -> None:
    rendered = render_nftables(CLUSTERS[0], IPFamily.IPV4)
    done = kproxy("render", *NFT, "-4")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == rendered.save_text()
    assert "hook output priority -100; policy accept;" in done.stdout
    trixie = kproxy("render", *NFT, "-4", "--nft", "1.1.3").stdout
    assert trixie == rendered.save_text("1.1.3")
    assert "hook output priority dstnat; policy accept;" in trixie
    listing = kproxy("render", *NFT[:-2], "--all-nodes", "--output-dir", tmp_path / "rules")
    assert listing.returncode == 0
    assert (tmp_path / "rules" / "node-0.v4.nft").read_text() == done.stdout
    assert len(list((tmp_path / "rules").iterdir())) == 2 * len(list((tmp_path / "rules").glob("*.v6.nft")))


def test_nftables_mode_lists_objects_with_provenance(kproxy: Run) -> None:
    records = json.loads(kproxy("render", *NFT, "-4", "--format", "json").stdout)
    by_text = {record["text"]: record for record in records}
    text = "add element ip kube-proxy service-nodeports { udp . 30107 : goto external-B2K7LPLE-default/svc-1/udp/ }"
    assert by_text[text] == {
        "object": "element",
        "table": "ip kube-proxy",
        "text": text,
        "provenance": {"reason": "node port 30107", "service": "default/svc-1", "port": "", "protocol": "UDP"},
        "map": "service-nodeports",
    }
    assert by_text["add rule ip kube-proxy reject-chain reject"]["rule"] == 1
    chain = "service-B2K7LPLE-default/svc-1/udp/"
    narrowed = json.loads(kproxy("render", *NFT, "-4", "--format", "json", "--chain", chain).stdout)
    assert [record["object"] for record in narrowed] == ["chain", "rule"]
    missing = kproxy("render", *NFT, "-4", "--format", "json", "--chain", "none")
    assert (missing.returncode, missing.stderr) == (2, "error: there is no chain 'none' in table ip kube-proxy\n")


IPVS = (
    "-f", IPVS_CLUSTERS[0] / "cluster.yaml", "--config", IPVS_CLUSTERS[0] / "config.ipvs.yaml",
    "--node", "node-0", "-4",
)  # fmt: skip


def test_ipvs_mode(kproxy: Run, tmp_path: Path) -> None:
    rendered = render_ipvs(IPVS_CLUSTERS[0], IPFamily.IPV4)
    wanted = {
        "save": rendered.save_text, "restore": rendered.restore_text, "ipset": rendered.ipset_text,
        "ipvsadm": rendered.ipvsadm_text, "addresses": rendered.addresses_text,
    }  # fmt: skip
    for form, text in wanted.items():
        done = kproxy("render", *IPVS, "--format", form)
        assert (done.returncode, done.stdout, done.stderr) == (0, text, "")
    records = json.loads(kproxy("render", *IPVS, "--format", "json").stdout)
    server = next(each for each in records if each.get("object") == "virtual server")
    text = rendered.ipvsadm_text.partition("\n")[0]
    assert server == {
        "object": "virtual server",
        "text": text,
        "provenance": {"reason": "cluster IP", "service": "default/svc-1", "port": "", "protocol": "UDP"},
        "server": "-u 10.96.1.2:8080",
    }
    assert {"object": "address", "device": "kube-ipvs0"}.items() <= next(
        each for each in records if each.get("text") == "10.96.1.2/32 dev kube-ipvs0"
    ).items()
    assert "net.ipv4.vs.conntrack = 1" in {each["text"] for each in records}
    narrowed = json.loads(kproxy("render", *IPVS, "--format", "json", "--chain", "KUBE-LOAD-BALANCER").stdout)
    assert {(each["table"], each["chain"]) for each in narrowed} == {("nat", "KUBE-LOAD-BALANCER")}
    done = kproxy("render", *IPVS[:4], "--all-nodes", "--output-dir", tmp_path / "out")
    assert done.returncode == 0
    assert (tmp_path / "out" / "node-0.v4.ipvsadm").read_text() == rendered.ipvsadm_text
    ends = {path.name.partition(".")[2] for path in (tmp_path / "out").iterdir()}
    assert ends == {f"v{version}.{end}" for version in (4, 6) for end in ("save", "ipset", "ipvsadm", "addresses")}


def test_restore_and_families(kproxy: Run) -> None:
    for flag, family in (("-4", IPFamily.IPV4), ("-6", IPFamily.IPV6)):
        done = kproxy("render", *MINI, flag, "--format", "restore")
        assert done.stdout == render(MINIKUBE, family).restore_text
    assert kproxy("render", *MINI, "-4", "-6").returncode == 2


def test_an_ipv6_node_is_rendered_in_ipv6_by_default(kproxy: Run, tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: six}\n"
        "status: {addresses: [{type: InternalIP, address: '2001:db8::2'}]}\n"
    )
    assert "! -d ::1/128" in kproxy("render", "-f", "node.yaml").stdout
    assert "::1" not in kproxy("render", "-f", "node.yaml", "-4").stdout


def test_json_lists_rules_with_provenance(kproxy: Run) -> None:
    records = json.loads(kproxy("render", *MINI, "--format", "json").stdout)
    saved = kproxy("render", *MINI).stdout
    assert [record["text"] for record in records] == [line for line in saved.splitlines() if line.startswith("-A")]
    by_text = {record["text"]: record for record in records}
    dnat = by_text[
        '-A KUBE-SEP-E4K4QV7BSCUUUP7F -p tcp -m comment --comment "default/crd-array-watchers" -m tcp -j DNAT '
        "--to-destination 10.244.0.36:8080"
    ]
    assert dnat == {
        "table": "nat",
        "chain": "KUBE-SEP-E4K4QV7BSCUUUP7F",
        "rule": 2,
        "text": dnat["text"],
        "provenance": {
            "reason": "to endpoint",
            "service": "default/crd-array-watchers",
            "port": "",
            "protocol": "TCP",
            "endpointSlice": "default/crd-array-watchers-5tn8d",
            "endpoint": "10.244.0.36:8080",
        },
    }
    masquerade = by_text["-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000"]
    assert masquerade["provenance"] == {"reason": "base rule: mark for masquerading", "base": True}
    narrowed = json.loads(kproxy("render", *MINI, "--format", "json", "--chain", "KUBE-MARK-MASQ").stdout)
    assert [record["rule"] for record in narrowed] == [1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--format", "json", "--chain", "KUBE-NOPE"), "there is no chain 'KUBE-NOPE'"),
        (("--format", "yaml", "-t", "raw"), "no rules in table 'raw'"),
        (("--format", "json", "-t", "nope"), "no rules in table 'nope'"),
        (("-t", "nat"), "narrow --format json and yaml"),
        (("--mode", "nftables", "--format", "json", "-t", "nat"), "nftables mode has one table"),
        (("--mode", "nftables", "--format", "yaml", "-t", "filter"), "nftables mode has one table"),
        (("--node", "nobody"), "node 'nobody' is not among the Nodes of the cluster: minikube"),
        (("--feature", "nope=on"), "'nope' is not a feature"),
        (("--feature", "nfacct=yes"), "a feature is on or off"),
        (("--format", "ipset"), "--format ipset is for ipvs mode, and the mode is iptables"),
        (("--all-nodes",), "go together"),
        (("--format", "xml"), "xml"),
    ],
)
def test_usage_errors(kproxy: Run, arguments: tuple[str, ...], words: str) -> None:
    done = kproxy("render", *MINI, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr


def test_features(kproxy: Run) -> None:
    text = kproxy("render", *MINI, "--feature", "nfacct=on", "--feature", "random-fully=off").stdout
    assert "--nfacct-name  ct_state_invalid_dropped_pkts" in text
    assert "--nfacct-name  localhost_nps_accepted_pkts" in text
    assert "--random-fully" not in text


def test_output_file_is_written_whole_with_usual_permissions(kproxy: Run, tmp_path: Path) -> None:
    done = kproxy("render", *MINI, "-o", "rules.save")
    assert (done.returncode, done.stdout) == (0, "")
    written = tmp_path / "rules.save"
    assert written.read_text() == render(MINIKUBE, IPFamily.IPV4).save_text
    assert stat.S_IMODE(written.stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["rules.save"]


@pytest.mark.parametrize("output", ["missing/rules.save", "folder"])
def test_output_that_cannot_be_written_leaves_nothing_behind(kproxy: Run, tmp_path: Path, output: str) -> None:
    (tmp_path / "folder").mkdir()
    done = kproxy("render", *MINI, "-o", output)
    assert done.returncode == 1
    assert f"cannot write {output}" in done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_a_link_is_followed_and_a_device_is_written_to(kproxy: Run, tmp_path: Path) -> None:
    (tmp_path / "real.save").write_text("old\n")
    (tmp_path / "link.save").symlink_to("real.save")
    assert kproxy("render", *MINI, "-o", "link.save").returncode == 0
    assert (tmp_path / "link.save").is_symlink()
    assert (tmp_path / "real.save").read_text().startswith("*mangle")
    assert kproxy("render", *MINI, "-o", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()
    assert kproxy("render", *MINI, "-o", "/dev/stdout").stdout == kproxy("render", *MINI).stdout
    full = kproxy("render", *MINI, "-o", "/dev/full")
    assert full.returncode == 1
    assert "cannot write /dev/full: No space left on device" in full.stderr


def test_bad_input_writes_nothing(kproxy: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(SERVICE.replace("port: 80", "port: 70000"))
    (tmp_path / "rules.save").write_text("what was there before\n")
    done = kproxy("render", "-f", "bad.yaml", "--node", "n", "-o", "rules.save")
    assert done.returncode == 2
    assert "bad.yaml: document 1" in done.stderr
    assert "spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive" in done.stderr
    assert (tmp_path / "rules.save").read_text() == "what was there before\n"


def test_all_errors_of_all_files_are_reported(kproxy: Run, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(
        SERVICE.replace("port: 80", "port: 0") + "---\n" + SERVICE.replace("web", "Bad_")
    )
    (tmp_path / "two.json").write_text("{")
    done = kproxy("render", "-f", "one.yaml", "-f", "two.json", "-f", "three.yaml", "--node", "n")
    assert done.returncode == 2
    for words in ("one.yaml: document 1", "one.yaml: document 2", "two.json", "three.yaml: no such file"):
        assert words in done.stderr


def test_a_bad_configuration_does_not_hide_bad_manifests(kproxy: Run) -> None:
    done = kproxy("render", "-f", "no-manifests.yaml", "--config", "no-config.yaml", "--node", "n")
    assert done.returncode == 2
    assert "no-manifests.yaml: no such file" in done.stderr
    assert "no-config.yaml: " in done.stderr


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("kind: KubeProxyConfiguration\napiVersion: kubeproxy.config.k8s.io/v1\n", "v1alpha1"),
        ("iptables: {masqueradeBit: 32}", "masqueradeBit"),
        ("a: [", "config.yaml"),
    ],
)
def test_bad_configuration(kproxy: Run, tmp_path: Path, config: str, words: str) -> None:
    header = "" if "kind" in config else "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
    (tmp_path / "config.yaml").write_text(header + config)
    done = kproxy("render", "-f", MINIKUBE / "cluster.yaml", "--config", "config.yaml")
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


def test_other_kinds_and_unallocated_services_on_stdin_are_notes_on_stderr(kproxy: Run) -> None:
    text = SERVICE + "---\n" + SERVICE.replace("web", "new").replace("clusterIP: 10.96.0.7, ", "")
    text += "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: q}\n"
    done = kproxy("render", "-f", "-", "--node", "n", stdin=text)
    assert done.returncode == 0
    assert "skipped 2 objects of other kinds: 2 v1/Pod" in done.stderr
    assert "shop/new has no clusterIP" in done.stderr
    assert "shop/web has no endpoints" in done.stdout


def test_the_node_comes_from_the_configuration_or_is_the_only_one(kproxy: Run, tmp_path: Path) -> None:
    case = CLUSTERS[6]
    from_config = kproxy("render", "-f", case / "cluster.yaml", "--config", case / "config.yaml")
    named = kproxy("render", "-f", case / "cluster.yaml", "--config", case / "config.yaml", "--node", "node-0")
    assert from_config.stdout == named.stdout != ""
    several = kproxy("render", "-f", case / "cluster.yaml")
    assert several.returncode == 2
    assert "say which with --node (node-0, node-1" in several.stderr
    nobody = kproxy("render", "-f", "-", stdin=SERVICE)
    assert nobody.returncode == 2
    assert "has no Node: say with --node" in nobody.stderr


def test_all_nodes(kproxy: Run, tmp_path: Path) -> None:
    case = CLUSTERS[6]
    arguments = ("-f", case / "cluster.yaml", "--config", case / "config.yaml")
    done = kproxy("render", *arguments, "--all-nodes", "--output-dir", "out/rules")
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "out/rules").iterdir())
    assert names == sorted(f"node-{i}.v{v}.save" for i in range(len(names) // 2) for v in (4, 6))
    assert len(names) >= 4
    for name in names:
        node, family = name.split(".")[0], name.split(".")[1]
        one = kproxy("render", *arguments, "--node", node, f"-{family[1]}")
        assert (tmp_path / "out/rules" / name).read_text() == one.stdout


def test_a_reader_that_leaves_early_is_no_error_message(kproxy: Run) -> None:
    command = [*KPROXY, "render", *map(str, MINI)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(PATIENCE) == 1


def test_help_shows_examples(kproxy: Run) -> None:
    for arguments in (
        ("--help",),
        ("render", "--help"),
        ("golden", "--help"),
        ("explain", "--help"),
        ("trace", "--help"),
    ):
        done = kproxy(*arguments)
        assert done.returncode == 0
        assert "Examples:" in done.stdout
    assert kproxy("nope").returncode == 2
    assert kproxy("--version").stdout.startswith("kproxy")


@pytest.mark.parametrize("arguments", [("render", *MINI), ("explain", *MINI, "--service", "default/crd-array-watcher")])
def test_a_full_or_closed_stdout_is_one_message(arguments: tuple[str | Path, ...]) -> None:
    for redirection, words in ((">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
        done = in_shell(*arguments, redirection=redirection)
        assert (done.returncode, done.stderr) == (1, f"error: cannot write output: {words}\n")


def test_a_closed_stdin_holds_no_objects() -> None:
    done = in_shell("render", "-f", "-", redirection="<&-")
    assert (done.returncode, done.stderr) == (2, "error: -: no Kubernetes objects found\n")


def in_shell(*arguments: str | Path, redirection: str) -> subprocess.CompletedProcess[str]:
    command = " ".join(f"'{part}'" for part in (*KPROXY, *arguments))
    return subprocess.run(["sh", "-c", f"{command} {redirection}"], capture_output=True, text=True, check=False)


def test_all_nodes_writes_all_or_nothing(kproxy: Run, tmp_path: Path) -> None:
    case = CLUSTERS[6]
    (tmp_path / "out" / "node-0.v4.save").mkdir(parents=True)
    done = kproxy(
        "render", "-f", case / "cluster.yaml", "--config", case / "config.yaml", "--all-nodes", "--output-dir", "out"
    )
    assert done.returncode == 1
    assert "cannot write to out: Is a directory" in done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["node-0.v4.save"]


@pytest.mark.parametrize("name", ["json", "yaml", "save"])
def test_o_is_a_file_and_no_format(kproxy: Run, tmp_path: Path, name: str) -> None:
    """With kubectl, and most of kproxy's commands, -o json is a format: no file is written silently."""
    done = kproxy("render", *MINI, "-o", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"-o names a file here, and --format the format; for a file of that name say -o ./{name}" in done.stderr
    assert not (tmp_path / name).exists()
    assert kproxy("render", *MINI, "-o", f"./{name}").returncode == 0
    assert (tmp_path / name).exists()


def test_what_manifests_lack_is_said(kproxy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SERVICE.replace("clusterIP: 10.96.0.7, ", "selector: {app: web}, ")
    text += "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {podCIDR: 10.244.0.0/24}\n"
    done = kproxy("render", "-f", "-", stdin=text)
    assert done.returncode == 0
    whole = done.stderr
    monkeypatch.setenv("COLUMNS", "80")
    folded = kproxy("render", "-f", "-", stdin=text).stderr
    monkeypatch.delenv("COLUMNS")
    assert max(map(len, whole.splitlines())) > 100, "in a pipe each note is one line"
    assert max(map(len, folded.splitlines())) <= 80
    assert folded.split() == whole.split()
    assert "shop/web has no clusterIP" in done.stderr
    assert "--allocate 10.96.0.0/12" in done.stderr
    assert "no EndpointSlices, though 1 Service has a selector" in done.stderr
    assert "no kube-proxy configuration, so clusterCIDR is unknown" in done.stderr
    done = kproxy("render", "-f", "-", "--allocate", "10.96.0.0/12", stdin=text)
    assert "no clusterIP" not in done.stderr
    assert "shop/web has no endpoints" in done.stdout
    done = kproxy("render", "--context", "x", "--allocate", "10.96.0.0/12")
    assert (done.returncode, "--allocate goes with manifests" in done.stderr) == (2, True)
    done = kproxy("render", "-f", "-", "--allocate", "10.96.0.1/12", stdin=text)
    assert (done.returncode, "Invalid value for --allocate" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("mode", "option", "only"),
    [
        ("iptables", ("--nft", "1.1.3"), "nftables"),
        ("iptables", ("--feature", "object-comments=off"), "nftables"),
        ("nftables", ("--feature", "nfacct=on"), "iptables"),
        ("nftables", ("--feature", "random-fully=off"), "iptables and ipvs"),
        ("ipvs", ("--feature", "object-comments=off"), "nftables"),
    ],
)
def test_an_option_of_the_other_mode_is_told(kproxy: Run, mode: str, option: tuple[str, str], only: str) -> None:
    plain = kproxy("render", *MINI, "--mode", mode)
    done = kproxy("render", *MINI, "--mode", mode, *option)
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    name = " ".join(option).partition("=")[0] if option[0] == "--feature" else option[0]
    assert f"note: {name} says nothing in {mode} mode: it is for {only} mode\n" in done.stderr
    assert "says nothing" not in plain.stderr
    assert "says nothing" not in kproxy("render", *MINI, "--mode", only, *option).stderr


CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-proxy, namespace: kube-system}
data:
  config.conf: |
    apiVersion: kubeproxy.config.k8s.io/v1alpha1
    kind: KubeProxyConfiguration
    mode: nftables
    clusterCIDR: 10.244.0.0/16
"""


def test_the_cluster_s_own_configmap_is_its_configuration(kproxy: Run, tmp_path: Path) -> None:
    """Among the manifests and as --config: its mode and its clusterCIDR count; what an option says goes first."""
    (tmp_path / "map.yaml").write_text(CONFIG_MAP)
    for arguments, text in (
        (("-f", "-", "--node", "n1"), f"{SERVICE}---{CONFIG_MAP}"),
        (("-f", "-", "--node", "n1", "--config", str(tmp_path / "map.yaml")), SERVICE),
    ):
        done = kproxy("render", *arguments, stdin=text)
        assert done.returncode == 0
        assert done.stdout.startswith("table ip kube-proxy {")
        assert "10.244.0.0/16" in done.stdout
        assert "kube-proxy configuration" not in done.stderr
        assert "ConfigMap" not in done.stderr
        assert "*nat" in kproxy("render", *arguments, "--mode", "iptables", stdin=text).stdout
    (tmp_path / "own.yaml").write_text(CONFIG_MAP.replace("nftables", "iptables"))
    done = kproxy(
        "render", "-f", "-", "--node", "n1", "--config", str(tmp_path / "own.yaml"), stdin=f"{SERVICE}---{CONFIG_MAP}"
    )
    assert "*nat" in done.stdout
    done = kproxy("render", "-f", "-", "--node", "n1", stdin=f"{SERVICE}---{CONFIG_MAP.replace('nftables', 'other')}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "ConfigMap kube-system/kube-proxy, config.conf: line 3" in done.stderr


def test_an_address_that_two_services_claim_is_noted(kproxy: Run, tmp_path: Path) -> None:
    spec = "externalIPs: [198.51.100.7], ports: [{port: 80}]"
    items = [
        f"{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{clusterIP: 10.96.0.{name}, {spec}}}}}"
        for name in ("9", "10")
    ]
    path = tmp_path / "services.yaml"
    path.write_text("\n---\n".join(each.replace("name: ", "name: s", 1) for each in items))
    told = kproxy("render", "-f", path, "--node", "n1")
    assert told.returncode == 0
    assert "198.51.100.7:80/TCP is claimed by 2 Services, default/s10 and default/s9" in told.stderr
