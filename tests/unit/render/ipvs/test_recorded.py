"""IPVS mode against what kube-proxy v1.36.2 really made."""

from __future__ import annotations

import random
import re
import shlex
import subprocess
from pathlib import Path

import msgspec
import pytest

from kproxy.api.kubeproxyconfig.duration import Duration
from kproxy.api.kubeproxyconfig.types import IPVS
from kproxy.netfilter.ipvs.read import read_servers
from kproxy.render import Features, RenderedIpvs, RenderOptions, render_in_mode, select_target
from kproxy.render.ipvs.sets import SETS
from kproxy.render.origin import RenderedObject, RenderedRule
from kproxy.services import IPFamily
from kproxy.services.tracker import ServiceState
from tests.support.recorded import IPVS_CLUSTERS, SUFFIX, load_ipvs, render_ipvs

families = pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: family.value)
clusters = pytest.mark.parametrize("case", IPVS_CLUSTERS, ids=lambda case: case.name)
some_clusters = pytest.mark.parametrize("case", IPVS_CLUSTERS[::8], ids=lambda case: case.name)


def test_all_recorded_clusters_are_here() -> None:
    assert len(IPVS_CLUSTERS) == 78


def recorded(case: Path, family: IPFamily) -> list[list[str]]:
    """Virtual servers, sets with members, addresses."""
    text = (case / f"kube-proxy.{SUFFIX[family]}.ipvs").read_text()
    return [part.splitlines() for part in re.split(r"^# .*\n", text, flags=re.MULTILINE)[1:]]


def chains(text: str) -> dict[tuple[str, str], list[tuple[str, ...]]]:
    table, found = "", dict[tuple[str, str], list[tuple[str, ...]]]()
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":"):
            found[table, line[1:].split()[0]] = []
        elif line.startswith("-A "):
            words = shlex.split(line)
            found[table, words[1]].append(tuple(words[2:]))
    found["filter", "KUBE-IPVS-OUT-FILTER"].sort()
    return found


def set_line(line: str) -> tuple[str, ...]:
    """A line of `ipset save` without options, and without the family of a set of ports."""
    words = line.split()
    of_addresses = words[0] == "create" and words[2].startswith("hash")
    return (*words[:3], *([words[words.index("family") + 1]] if of_addresses else []))


@families
@clusters
def test_all_is_like_kube_proxys(case: Path, family: IPFamily) -> None:
    servers, sets, addresses = recorded(case, family)
    rendered = render_ipvs(case, family)
    assert sorted(rendered.ipvsadm_text.splitlines()) == sorted(line.strip() for line in servers)
    assert sorted(map(set_line, rendered.ipset_text.splitlines())) == sorted(map(set_line, sets))
    bits = f"/{family.bits} dev kube-ipvs0"
    assert sorted(rendered.addresses_text.splitlines()) == sorted(f"{each}{bits}" for each in addresses)
    restore = (case / f"kube-proxy.{SUFFIX[family]}.ipvs.restore").read_text()
    assert chains(rendered.restore_text) == chains(restore)


@families
@some_clusters
def test_order_of_documents_does_not_matter(case: Path, family: IPFamily) -> None:
    manifests, config = load_ipvs(case)
    services, slices = list(manifests.services), list(manifests.endpoint_slices)
    chance = random.Random(case.name)
    chance.shuffle(services)
    chance.shuffle(slices)
    shuffled = render_in_mode(select_target(manifests.nodes, config), family, services, slices, config)
    assert isinstance(shuffled, RenderedIpvs)
    assert texts(shuffled) == texts(render_ipvs(case, family))


def texts(rendered: RenderedIpvs) -> tuple[str, ...]:
    return rendered.restore_text, rendered.ipset_text, rendered.ipvsadm_text, rendered.addresses_text


@families
@some_clusters
def test_everything_has_its_provenance(case: Path, family: IPFamily) -> None:
    rendered = render_ipvs(case, family)
    rules = list(rendered.rules())
    saved = rendered.save_text.splitlines()
    assert [rule.text for rule in rules] == [line for line in saved if line.startswith("-A")]
    assert saved.count('-A INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER') == 1
    objects = list(rendered.objects())
    lines = "".join(texts(rendered)[1:]).splitlines()
    assert [each.text for each in objects][: len(lines)] == lines
    everything: list[RenderedRule | RenderedObject] = [*rules, *objects]
    for each in everything:
        name, endpoint = each.origin.service_port, each.origin.endpoint
        assert name is not None or each.origin.reason.startswith("base ")
        if name is not None and endpoint is not None:
            assert endpoint in rendered.state.endpoints[name]
            assert endpoint.address in each.text


def test_what_is_written_is_read() -> None:
    for case in IPVS_CLUSTERS:
        rendered = render_ipvs(case, IPFamily.IPV4)
        made = rendered.made.servers.values()
        found = read_servers(rendered.ipvsadm_text, "x").servers
        assert found == {each.server: [real for real, _ in each.real] for each in made}


def test_settings() -> None:
    minutes = Duration(15 * 60 * 10**9)
    ipvs = IPVS(strict_arp=True, tcp_timeout=minutes, exclude_cidrs=("10.9.0.0/16",))
    state = ServiceState.of(IPFamily.IPV4, "n1", (), ())
    rendered = RenderedIpvs.of(state, RenderOptions(ipvs=ipvs, features=Features(random_fully=False)))
    found = {(each.kind, each.text) for each in rendered.objects() if not each.container}
    assert found >= {
        ("sysctl", "net.ipv4.vs.conntrack = 1"), ("sysctl", "net.ipv4.conf.all.arp_ignore = 1"),
        ("timeouts", "--set 900 0 0"), ("excluded network", "10.9.0.0/16"),
    }  # fmt: skip
    assert "--random-fully" not in rendered.restore_text
    plain = RenderedIpvs.of(state, RenderOptions())
    assert {each.kind for each in plain.objects()} == {"set", "sysctl"}
    assert not any("arp" in each.text for each in plain.objects())


def test_of_two_services_that_claim_an_address_the_favoured_one_gets_it() -> None:
    case = IPVS_CLUSTERS[0]
    manifests, config = load_ipvs(case)
    web = next(each for each in manifests.services if each.spec.cluster_ip not in ("", "None"))
    twin = msgspec.structs.replace(web, metadata=msgspec.structs.replace(web.metadata, name="zz-twin"))
    target = select_target(manifests.nodes, config)
    for favoured, wanted in (("", twin), (web.metadata.key, web)):
        rendered = render_in_mode(target, IPFamily.IPV4, (web, twin), (), config, favoured=favoured)
        assert isinstance(rendered, RenderedIpvs)
        owners = {each.origin.service_port for each in rendered.made.servers.values()}
        assert {each.service for each in owners if each} == {wanted.metadata.key}


@pytest.mark.root
@families
def test_ipset_loads_the_sets(family: IPFamily) -> None:
    """In a network namespace of its own, which is gone with the process."""
    rendered = render_ipvs(IPVS_CLUSTERS[3], family)
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", "ipset restore && ipset save"],
        input=rendered.ipset_text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(map(set_line, done.stdout.splitlines())) == sorted(map(set_line, rendered.ipset_text.splitlines()))
    assert len({each.name_in(family) for each in SETS}) == len(SETS)
