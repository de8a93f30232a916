"""`kproxy collect`: nodes by runners, what is said of failures, and its arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kproxy.cli.collect import command
from kproxy.cluster.snapshot.cluster import Cluster, read_snapshot
from kproxy.cluster.snapshot.script import script
from kproxy.collect.collect import Collector
from kproxy.errors import KproxyError
from tests.support.cluster.snapshots import vxlan_cluster, write_files


class Printer:
    """A node that has the files that it is given, or fails."""

    via = "test"

    def __init__(self, files: dict[str, bytes] | str) -> None:
        self._files = files

    def read(self) -> dict[str, bytes]:
        if isinstance(self._files, str):
            raise KproxyError(self._files)
        return self._files


def test_a_node_that_fails_is_named_and_the_rest_is_kept() -> None:
    told: list[str] = []
    collector = Collector("S", "exec", "prod", told.append)
    readers = {
        "n1": Printer({"iptables-save": b"", "errors": b"nft: nft: not found\n"}),
        "n2": Printer("no such pod"),
    }
    found = collector.nodes(readers, {"n3": "no kube-proxy runs there"})
    assert [(each.what, each.message) for each in found.info.failed] == [
        ("nodes/n2", "no such pod"),
        ("nodes/n3", "no kube-proxy runs there"),
    ]
    assert sorted(found.info.nodes) == ["n1", "n2", "n3"]
    assert any("n1: " in each and "1 part missing" in each for each in told)
    cluster = Cluster(found.files)
    assert list(cluster.hosts) == ["n1"]
    assert cluster.hosts["n1"].errors[0].message == "nft: not found"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--script", "--lab", "x"), "--script stands alone"),
        (("--via", "netns"), "--via netns needs --node"),
        (("--via", "netns", "--node", "../x"), "NAME or NAME=NAMESPACE expected"),
        (("--via", "none", "--node", "n"), "--node goes with"),
        (("--lab", "x", "--via", "none"), "--lab goes with --via lab"),
        (("--lab", "x", "--context", "c"), "manifests or a live cluster expected"),
        (("--lab", "nosuch"), "there is no lab"),
        (("--from", "s"), "--from goes with --redact"),
        (("--redact-map", "m"), "--redact-map goes with --redact"),
        (("--from", "s", "--redact", "--context", "c"), "--from asks no cluster"),
        (("--from", "nosuch", "--redact"), "nosuch: No such file or directory"),
    ],
)
def test_bad_arguments_are_errors(arguments: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(command, [*arguments])
    code = done.exception.exit_code if isinstance(done.exception, KproxyError) else done.exit_code
    assert code == 2
    assert message in done.output + str(done.exception)


def test_the_script_is_printed() -> None:
    done = CliRunner().invoke(command, ["--script"])
    assert done.exit_code == 0
    assert done.output == script()


def test_a_snapshot_is_redacted(tmp_path: Path) -> None:
    source = write_files(tmp_path / "s", vxlan_cluster())
    names, target = tmp_path / "names.json", tmp_path / "r"
    done = CliRunner().invoke(
        command, ["--from", str(source), "--redact", "-o", str(target), "--redact-map", str(names)]
    )
    assert (done.exit_code, done.stdout) == (0, f"{target}\n")
    assert names.stat().st_mode & 0o777 == 0o600
    assert json.loads(names.read_text())["pod"] == {"cart-0": "pod-1", "web-0": "pod-2", "web-1": "pod-3"}
    assert sorted(read_snapshot(target).pods) == ["ns-1/pod-1", "ns-1/pod-2", "ns-1/pod-3"]
