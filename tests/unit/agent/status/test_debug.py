"""/debug/rules and /debug/trace, and everything that an agent shows, put together over a real namespace."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from kproxy.agent.config.options import Settings
from kproxy.agent.run import Agent
from kproxy.agent.status.debug import Rendered, debug_pages, rules_page
from kproxy.agent.status.server import health_addresses, serve_status
from kproxy.api import Manifests, load_manifests
from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.cli.collect import command as collect_command
from kproxy.cli.trace.text import report_text
from kproxy.cluster.rules import HostRules, read_rule_file
from kproxy.cluster.snapshot.cluster import read_snapshot
from kproxy.dataplane import Host, index_ruleset
from kproxy.dataplane.query.assumptions import Surroundings
from kproxy.dataplane.query.json import report_record
from kproxy.dataplane.query.report import report
from kproxy.dataplane.query.spec import read_question
from kproxy.errors import InputError
from kproxy.httpd.server import Request, Response
from kproxy.linux.errors import ToolFailedError
from kproxy.linux.iptables.executor import IptablesExecutor
from kproxy.linux.namespace import Namespace
from kproxy.render import RenderedTable, RenderedTarget, render_table, render_target, select_target
from kproxy.render.iptables.save import saved_ruleset
from kproxy.render.origin import RenderedRule
from kproxy.render.provenance import object_record, rule_record
from kproxy.services import IPFamily
from tests.support.agent.recorded_http import Reply, ask, parse_metrics
from tests.support.waiting import eventually

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: node-0}
status: {addresses: [{type: InternalIP, address: 192.168.0.2}]}
---
apiVersion: v1
kind: Service
metadata: {name: lb, namespace: default}
spec:
  type: LoadBalancer
  clusterIPs: [10.96.0.20, "fd00::20"]
  clusterIP: 10.96.0.20
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  externalTrafficPolicy: Local
  healthCheckNodePort: 32001
  ports: [{name: http, port: 80, nodePort: 30080, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: two, namespace: shop}
spec: {clusterIP: 10.96.0.21, ports: [{name: a, port: 81, protocol: UDP}, {name: b, port: 82}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: lb-1, namespace: default, labels: {kubernetes.io/service-name: lb}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints:
- {addresses: [10.244.0.5], nodeName: node-0, conditions: {ready: true}}
- {addresses: [10.244.1.5], nodeName: node-1, conditions: {ready: true}}
"""


def manifests() -> Manifests:
    return load_manifests(("-",), CLUSTER.encode())


class View:
    """A family as of a sync."""

    def __init__(self, family: IPFamily, *, failing: bool = False, mode: str = "iptables") -> None:
        cluster, config = manifests(), KubeProxyConfiguration(mode=mode)
        self.family = family
        self.has_synced = True
        self.failing = failing
        target = select_target(cluster.nodes, config)
        render = render_table if mode == "nftables" else render_target
        self._rendered = render(target, family, cluster.services, cluster.endpoint_slices, config)

    def rendered(self) -> Rendered:
        return self._rendered


def rules_of(view: View) -> Iterator[RenderedRule]:
    rendered = view.rendered()
    assert isinstance(rendered, RenderedTarget)
    return rendered.rules()


VIEWS = [View(IPFamily.IPV4), View(IPFamily.IPV6)]
TABLES = [View(IPFamily.IPV4, mode="nftables"), View(IPFamily.IPV6, mode="nftables")]
HOST = Host.simple(["192.168.0.2", "127.0.0.1"])


def trace(query: dict[str, str], views: Sequence[View] = VIEWS, rules: str | None = None) -> Response:
    def read(family: IPFamily) -> HostRules:
        if rules is not None:
            return HostRules([read_rule_file(rules, "the kernel's rules")])
        rendered = next(view for view in views if view.family is family).rendered()
        text = rendered.save_text if isinstance(rendered, RenderedTarget) else rendered.save_text()
        return HostRules([read_rule_file(text, "the kernel's rules")])

    def host() -> Host:
        return HOST

    pages = debug_pages(lambda: views, read, host, "node-0", lambda found, label: f"{label}: {len(found.outcomes)}\n")
    return pages["/debug/trace"](Request("GET", "/debug/trace", query, "127.0.0.1"))


def test_rules_as_json_are_those_of_render() -> None:
    answer = rules_page(VIEWS, {"o": "json"})
    found = msgspec.json.decode(answer.body)["families"]
    assert [each["family"] for each in found] == ["IPv4", "IPv6"]
    for view, each in zip(VIEWS, found, strict=True):
        assert (each["node"], each["synced"], each["failing"]) == ("node-0", True, False)
        expected = [msgspec.to_builtins(rule_record(rule)) for rule in rules_of(view)]
        assert each["rules"] == expected
        assert all(rule["provenance"]["reason"] for rule in each["rules"])


@pytest.mark.parametrize(
    ("service", "chosen"),
    [("default/lb", {"default/lb"}), ("lb", {"default/lb"}), ("shop/two", {"shop/two"}), ("shop/two:b", {"shop/two"})],
)
def test_rules_of_one_service(service: str, chosen: set[str]) -> None:
    found = msgspec.json.decode(rules_page(VIEWS, {"o": "json", "service": service, "family": "4"}).body)["families"]
    assert len(found) == 1
    rules = found[0]["rules"]
    assert {rule["provenance"]["service"] for rule in rules} == chosen
    if service.endswith(":b"):
        assert {rule["provenance"]["port"] for rule in rules} == {"b"}
    everything = [rule_record(rule) for rule in rules_of(VIEWS[0])]
    assert len(rules) == len(
        [
            rule
            for rule in everything
            if rule.provenance.service in chosen and (not service.endswith(":b") or rule.provenance.port == "b")
        ]
    )


def test_rules_as_text_are_the_lines_with_their_reasons() -> None:
    text = rules_page([View(IPFamily.IPV4, failing=True)], {"table": "nat"}).body.decode()
    assert text.startswith("# IPv4 rules of node node-0, the last sync failed, the kernel may differ\n")
    rules = [rule for rule in rules_of(VIEWS[0]) if rule.table == "nat"]
    assert [line for line in text.splitlines() if line.startswith("-A")] == [rule.text for rule in rules]
    assert f"# 1. {rules[0].origin}\n{rules[0].text}\n" in text


def test_objects_of_nftables_mode_are_those_of_render() -> None:
    found = msgspec.json.decode(rules_page(TABLES, {"o": "json"}).body)["families"]
    for view, each in zip(TABLES, found, strict=True):
        rendered = view.rendered()
        assert isinstance(rendered, RenderedTable)
        expected = [msgspec.to_builtins(object_record(item, rendered.table)) for item in rendered.objects()]
        assert each["rules"] == expected
    for table in ("kube-proxy", "ip kube-proxy"):
        text = rules_page(TABLES, {"service": "default/lb", "table": table, "family": "4"}).body.decode()
        assert "\n# map service-ips\n# Service default/lb:http (TCP): cluster IP\nadd element ip kube-proxy " in text
        assert "\n# 1. Service default/lb:http (TCP): " in text
    chain = msgspec.json.decode(rules_page(TABLES, {"o": "json", "chain": "services", "family": "4"}).body)
    assert [each["object"] for each in chain["families"][0]["rules"]] == ["chain", "rule", "rule"]
    with pytest.raises(InputError, match="no rule of table=nat is programmed"):
        rules_page(TABLES, {"table": "nat"})


def test_rules_errors() -> None:
    for query, message in (
        ({"sevice": "x"}, "sevice: unknown field"),
        ({"o": "yaml"}, "o: text or json expected"),
        ({"family": "5"}, "family: IPv4 or IPv6 expected"),
        ({"service": "shop/none"}, "no rule of service=shop/none is programmed"),
    ):
        with pytest.raises(InputError, match=message):
            rules_page(VIEWS, query)
    pages = debug_pages(lambda: VIEWS, lambda _family: HostRules([]), lambda: HOST, "node-0")
    statuses = [
        pages["/debug/rules"](Request("GET", "/debug/rules", query)).status
        for query in ({"o": "x"}, {"service": "no"}, {"family": "4"})
    ]
    assert statuses == [400, 404, 200]


def test_trace_is_that_of_the_model() -> None:
    """The JSON is `kproxy trace -o json`'s for the same rules, host and packet, with provenance."""
    query = {"src": "203.0.113.7:4000", "dst": "192.168.0.2:30080", "proto": "tcp", "in": "eth0", "mark": "0x1"}
    answer = trace(query)
    assert (answer.status, answer.content_type) == (200, "application/json")
    ruleset = saved_ruleset(VIEWS[0].rendered().restore_text, IPFamily.IPV4)
    expected = report_record(report(index_ruleset(ruleset), Surroundings.known(HOST), read_question(query)))
    found = msgspec.json.decode(answer.body)
    provenance = [step.pop("provenance") for outcome in found["outcomes"] for step in outcome["path"]]
    assert found == msgspec.json.decode(msgspec.json.encode(expected))
    assert [text for text in provenance if "node port 30080" in text]
    assert [outcome["dst"] for outcome in found["outcomes"]] == ["10.244.0.5:8080"]
    assert msgspec.json.decode(trace({**query, "rules": "wanted"}).body)["outcomes"][0]["dst"] == "10.244.0.5:8080"


def test_trace_reads_the_kernel() -> None:
    """What somebody else wrote counts, and has no provenance of ours."""
    chains = ":INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n"
    rules = f"*filter\n{chains}-A FORWARD -s 1.2.3.4/32 -j ACCEPT\nCOMMIT\n"
    for source, verdict in (("1.2.3.4", "ACCEPT"), ("1.2.3.5", "DROP")):
        found = msgspec.json.decode(trace({"src": f"{source}:1", "dst": "10.0.0.1:2"}, rules=rules).body)
        assert found["outcomes"][0]["verdict"] == verdict
        assert not any("provenance" in step for step in found["outcomes"][0]["path"])
    assert trace({"dst": "10.0.0.1:2"}, rules="*filter\nnonsense\n").status == 400


def test_trace_to_a_service() -> None:
    found = msgspec.json.decode(trace({"service": "lb", "src": "10.244.0.9:1"}).body)
    assert found["packet"]["dst"] == "10.96.0.20:80"
    assert {outcome["dst"] for outcome in found["outcomes"]} == {"10.244.0.5:8080", "10.244.1.5:8080"}
    found = msgspec.json.decode(trace({"service": "default/lb:http", "src": "fd00::9"}).body)
    assert (found["packet"]["dst"], found["outcomes"][0]["verdict"]) == ("[fd00::20]:80", "REJECT")
    found = msgspec.json.decode(trace({"service": "shop/two:a"}).body)
    assert (found["packet"]["dst"], found["packet"]["proto"]) == ("10.96.0.21:81", "udp")
    assert trace({"service": "lb", "src": "10.244.0.9:1", "o": "text"}).body == b"node-0, now: 2\n"


@pytest.mark.parametrize("rules", ["kernel", "wanted"])
def test_trace_in_nftables_mode(rules: str) -> None:
    """What nft lists is traced with provenance, too."""
    query = {"src": "203.0.113.7:4000", "dst": "192.168.0.2:30080", "rules": rules}
    found = msgspec.json.decode(trace(query, TABLES).body)
    assert [outcome["dst"] for outcome in found["outcomes"]] == ["10.244.0.5:8080"]
    provenance = [step.get("provenance") or "" for step in found["outcomes"][0]["path"]]
    assert [text for text in provenance if text.startswith("Service default/lb:http (TCP): ")]
    assert all(provenance)
    found = msgspec.json.decode(trace({"service": "default/lb:http", "src": "fd00::9", "rules": rules}, TABLES).body)
    assert (found["packet"]["dst"], found["outcomes"][0]["verdict"]) == ("[fd00::20]:80", "REJECT")


def test_rules_of_others_count_in_nftables_mode() -> None:
    own = TABLES[0].rendered()
    assert isinstance(own, RenderedTable)
    other = "table inet wall {\n\tchain in {\n\t\ttype filter hook prerouting priority 0; policy drop;\n\t}\n}\n"
    query = {"src": "203.0.113.7:4000", "dst": "192.168.0.2:30080"}
    found = msgspec.json.decode(trace(query, TABLES, rules=f"{own.save_text()}\n{other}").body)
    assert [outcome["verdict"] for outcome in found["outcomes"]] == ["DROP"]


def test_trace_errors() -> None:
    for query, status, message in (
        ({}, 400, "dst: this field is required"),
        ({"dst": "10.0.0.1"}, 400, "IP:port expected"),
        ({"dst": "10.0.0.1:80", "mark": "blue"}, 400, "mark"),
        ({"dst": "10.0.0.1:80", "dts": "x"}, 400, "dts: unknown field"),
        ({"dst": "10.0.0.1:80", "rules": "mine"}, 400, "rules: kernel or wanted expected"),
        ({"dst": "10.0.0.1:80", "service": "lb"}, 400, "both are given"),
        ({"service": "shop/two"}, 400, "name one: shop/two:a, shop/two:b"),
        ({"service": "shop/none"}, 404, "Service shop/none is not programmed"),
    ):
        answer = trace(query)
        assert answer.status == status
        assert message in answer.body.decode().replace("IP:PORT", "IP:port")
    assert trace({"dst": "[fd00::1]:80"}, VIEWS[:1]).status == 404

    def broken(_family: IPFamily) -> HostRules:
        raise ToolFailedError("iptables-save failed")

    pages = debug_pages(lambda: VIEWS, broken, lambda: HOST, "node-0")
    answer = pages["/debug/trace"](Request("GET", "/debug/trace", {"dst": "10.0.0.1:80"}))
    assert (answer.status, answer.body) == (503, b"error: iptables-save failed\n")


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    import os
    import subprocess

    name = f"kp-obs-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for command in ("link set lo up", "addr add 192.168.0.2/32 dev lo", "route add 10.244.0.0/16 dev lo"):
            subprocess.run(["ip", "-n", name, *command.split()], check=True)
        path = tmp_path / "cluster.yaml"
        path.write_text(CLUSTER)
        yield name, path
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


@contextlib.contextmanager
def running(
    name: str, path: Path, mode: str = "iptables", metrics: str = "127.0.0.1:10249", token_file: str = ""
) -> Iterator[Agent]:
    """An agent that serves its status, over the files, once both families have synced."""
    config = KubeProxyConfiguration(mode=mode, metrics_bind_address=metrics)
    settings = Settings(
        config=config, node_name="node-0", netns=name, filenames=(str(path),), collect_token_file=token_file
    )
    agent = Agent(settings, manifests(), lambda it: serve_status(it, report_text))
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        eventually(lambda: agent.members and all(member.proxier.has_synced for member in agent.members))
        yield agent
    finally:
        agent.stop("the test is over")
        thread.join(60)
    assert not thread.is_alive()


@pytest.mark.root
def test_an_agent_shows_itself(namespace: tuple[str, Path]) -> None:
    """Every page tells of what is really there."""
    name, path = namespace
    with running(name, path) as agent, Namespace.named(name) as inside:

        def get(port: int, path: str) -> Reply:
            return inside.call(ask, port, path)

        eventually(lambda: '"IPv6"' in get(10256, "/healthz").body)
        assert get(10256, "/healthz").status == get(10256, "/livez").status == 200
        assert get(10249, "/proxyMode").body == "iptables"
        assert get(10249, "/configz").body.startswith('{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration"')
        eventually(lambda: answers(inside, 32001))
        assert get(32001, "/").headers["X-Load-Balancing-Endpoint-Weight"] == "1"
        families = parse_metrics(get(10249, "/metrics").body)
        totals = families["kubeproxy_sync_proxy_rules_iptables_total"].samples
        rules = msgspec.json.decode(get(10249, "/debug/rules?o=json&family=4").body)["families"][0]["rules"]
        own = [rule for rule in rules if rule["table"] == "nat" and rule["chain"].startswith("KUBE-")]
        key = ("kubeproxy_sync_proxy_rules_iptables_total", (("ip_family", "IPv4"), ("table", "nat")))
        assert totals[key] == str(len(own))
        assert families["kproxy_health_check_node_ports"].samples == {("kproxy_health_check_node_ports", ()): "1"}
        trace = msgspec.json.decode(get(10249, "/debug/trace?src=203.0.113.7:4000&dst=192.168.0.2:30080").body)
        assert [outcome["dst"] for outcome in trace["outcomes"]] == ["10.244.0.5:8080"]
        assert any("node port 30080" in step["provenance"] for step in trace["outcomes"][0]["path"])
        assert "10.244.0.5:8080" in get(10249, "/debug/trace?service=lb&src=10.244.0.9:1&o=text").body
        assert health_addresses(agent, inside, IPFamily.IPV4) == ("0.0.0.0",)


@pytest.mark.root
def test_an_agent_reads_its_node_for_collect(namespace: tuple[str, Path], tmp_path: Path) -> None:
    """From the node itself by its loopback address; from elsewhere with the token, and only with it."""
    name, path = namespace
    there, token = tmp_path / "there.tar.gz", tmp_path / "token"
    token.write_text("s3cret\n")

    def collect(inside: Namespace, url: str, *arguments: str) -> Result:
        options = ["--via", "agent", "--agent-url", url, "--node", "node-0", *arguments]
        return inside.call(CliRunner().invoke, collect_command, options)

    with running(name, path, metrics="0.0.0.0:10249"), Namespace.named(name) as inside:
        eventually(lambda: answers(inside, 10249))
        refused = collect(inside, "http://192.168.0.2:10249", "-o", str(tmp_path / "no"))
        assert (refused.exit_code, "only this host may see this" in refused.stderr) == (1, True)
        done = collect(inside, "http://127.0.0.1:10249", "-o", str(there))
        assert (done.exit_code, done.stdout) == (0, f"{there}\n")
        found = read_snapshot(there)
        host = found.hosts["node-0"]
        assert "-A KUBE-SERVICES" in (host.text("iptables-save") or "")
        assert "192.168.0.2" in (host.text("ip-addr.json") or "")
        assert "kubeproxy_sync_proxy_rules_iptables_total" in (host.text("kube-proxy/metrics") or "")
    with running(name, path, metrics="0.0.0.0:10249", token_file=str(token)), Namespace.named(name) as inside:
        eventually(lambda: answers(inside, 10249))
        refused = collect(inside, "http://127.0.0.1:10249", "-o", str(tmp_path / "none"))
        assert (refused.exit_code, "the token in X-Kproxy-Token is missing" in refused.stderr) == (1, True)
        elsewhere = ("http://192.168.0.2:10249", "--agent-token-file", str(token), "-o", str(tmp_path / "t.tar.gz"))
        assert collect(inside, *elsewhere).exit_code == 0
        assert inside.call(ask, 10249, "/debug/rules").status == 200


def answers(inside: Namespace, port: int) -> bool:
    try:
        inside.call(ask, port, "/")
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.root
def test_failing_syncs_show_everywhere(namespace: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """iptables refuses: health turns red, load balancers are told, metrics count; all green once it works again."""
    name, path = namespace
    with running(name, path), Namespace.named(name) as inside:
        eventually(lambda: answers(inside, 32001))

        def status(port: int, path: str) -> int:
            return inside.call(ask, port, path).status

        def failing() -> str:
            samples = parse_metrics(inside.call(ask, 10249, "/metrics").body)["kproxy_sync_failing"].samples
            return samples[("kproxy_sync_failing", (("ip_family", "IPv4"),))]

        def refuse(_executor: IptablesExecutor, _text: str) -> None:
            raise ToolFailedError("iptables-restore: line 7 failed")

        assert (status(10256, "/healthz"), status(32001, "/"), failing()) == (200, 200, "0")
        with monkeypatch.context() as patched:
            patched.setattr(IptablesExecutor, "restore", refuse)
            path.write_text(CLUSTER.replace("10.244.0.5", "10.244.0.6"))
            eventually(lambda: status(10256, "/healthz") == 503)
            assert status(10256, "/livez") == 503
            assert failing() == "1"
            assert "line 7 failed" in inside.call(ask, 10256, "/healthz").body
            port = inside.call(ask, 32001, "/")
            assert (port.status, '"serviceProxyHealthy": false' in port.body) == (503, True)
            assert "the last sync failed" in inside.call(ask, 10249, "/debug/rules?family=4").body
        eventually(lambda: status(10256, "/healthz") == 200)
        assert (status(32001, "/"), failing()) == (200, "0")
        assert "10.244.0.6:8080" in inside.call(ask, 10249, "/debug/rules?service=lb").body
