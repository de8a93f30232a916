"""What an installation without extras can do, and what it says of the rest."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import click
import pytest

from kproxy import extras
from kproxy.cli.help import contexts
from kproxy.cli.main import group
from kproxy.extras import EXTRAS, MissingExtraError
from tests.support import paths
from tests.support.cluster.snapshots import vxlan_cluster, write_files

CLUSTER = paths.GOLDEN / "minikube"

# Runs commands, one list of words a line of standard input, with the given folders in place of site-packages.
RUN = """
import json, sys

sys.path[:0] = sys.argv[1:]
from kproxy.cli.main import main
for line in sys.stdin.read().splitlines():
    sys.argv[1:] = json.loads(line)
    try:
        main()
    except SystemExit as end:
        sys.stdout.flush()
        print(f"exit {end.code}", file=sys.stderr, flush=True)
"""


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of this environment without those of the extras."""
    folder = tmp_path_factory.mktemp("light")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name not in {*EXTRAS["all"], "kubernetes", "__pycache__"}:
            (folder / path.name).symlink_to(path)
    return folder


def without_extras(light: Path, commands: list[list[str]], cwd: Path) -> list[tuple[int, str]]:
    """The exit code of each command, and what it said on stderr."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", RUN, str(paths.ROOT), str(light)],
        input="".join(f"{json.dumps(words)}\n" for words in commands),
        capture_output=True, text=True, cwd=cwd, check=False,
    )  # fmt: skip
    *parts, rest = done.stderr.split("exit ")
    assert not parts or rest.strip().isdecimal(), done.stderr
    said, codes = [parts[0]], []
    for part in [*parts[1:], rest]:
        code, _, text = part.partition("\n")
        codes.append(int(code))
        said.append(text)
    return list(zip(codes, said, strict=False))


def paths_of_commands() -> list[list[str]]:
    """The words of every command: `lab`, `lab up`..."""
    return [each.command_path.split()[1:] for each in contexts(click.Context(group, info_name="kproxy"))]


def test_what_is_light_needs_no_extra(light: Path, tmp_path: Path) -> None:
    manifests = ["-f", str(CLUSTER / "cluster.yaml"), "--config", str(CLUSTER / "config.yaml")]
    rules = CLUSTER / "expected" / "minikube.v4.save"
    snapshot = write_files(tmp_path / "snapshot", vxlan_cluster())
    wanted = {
        0: [
            ["render", *manifests],
            ["explain", *manifests, "--service", "kube-system/kube-dns"],
            ["trace", "--rules", str(rules), "--src", "10.244.0.9", "--dst", "10.96.0.10:53", "--proto", "udp"],
            ["diff", str(rules), str(rules)],
            ["golden", "check", str(CLUSTER)],
            *([*path, "--help"] for path in paths_of_commands()),
        ],
        # Packets for which the modes differ, and findings.
        1: [["migrate", *manifests, "--to", "nftables"], ["audit", str(snapshot)]],
    }
    commands = [(code, words) for code, each in wanted.items() for words in each]
    found = without_extras(light, [words for _, words in commands], tmp_path)
    assert [code for code, _ in found] == [code for code, _ in commands], found
    assert "pip install" not in str(found)
    assert len(paths_of_commands()) > 25


def wanting() -> Iterator[tuple[str, list[str]]]:
    """Commands, each with the extra that it asks for."""
    manifests = ["-f", str(CLUSTER / "cluster.yaml")]
    yield "client", ["collect", "--kubeconfig", "kubeconfig", "-o", "snapshot"]
    yield "linux", ["apply", *manifests, "--dry-run"]
    yield "linux", ["drift", *manifests]
    yield "linux", ["cleanup", "--dry-run"]
    yield "agent", ["run", *manifests]
    yield "agent", ["overlay", "check", "--node", "n"]
    yield "apiserver", ["apiserver", "--data", "state"]
    yield "apiserver", ["apiserver"]  # what is missing in the command line is said once the extra is there
    yield "explore", ["explore", *manifests]
    yield "lab", ["lab", "up"]
    yield "lab", ["lab", "status"]
    yield "lab", ["audit", "--lab", "lab"]
    yield "pcap", ["trace", "--rules", "rules", "--pcap", "no.pcap"]
    yield "linux", ["migrate", *manifests, "--verify"]
    yield "zstd", ["audit", "no.tar.zst"]


def test_a_command_without_its_extra_says_in_one_line_which(light: Path, tmp_path: Path) -> None:
    (tmp_path / "no.tar.zst").write_bytes(b"\x28\xb5\x2f\xfd....")
    (tmp_path / "rules").write_text("*filter\nCOMMIT\n")
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    kubeconfig = {
        "clusters": [cluster],
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "current-context": "x",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    cases = list(wanting())
    for (extra, words), (code, said) in zip(
        cases, without_extras(light, [each[1] for each in cases], tmp_path), strict=True
    ):
        assert code == 2, (words, said)
        assert len(said.splitlines()) == 1, (words, said)
        assert f"pip install 'kube-kproxy[{extra}]'" in said, (words, said)
        assert len(said) < 160, (words, said)


def test_the_lists_are_those_of_the_package() -> None:
    """Each extra's modules are of the distributions that pyproject.toml names, and each of these is asked for."""
    declared = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    owners = {
        module: {name.lower().replace("_", "-") for name in names} for module, names in packages_distributions().items()
    }

    def distributions(extra: str) -> set[str]:
        found: set[str] = set()
        for requirement in declared[extra]:
            name, _, others = requirement.partition("[")
            if name == "kube-kproxy":
                found.update(*(distributions(each) for each in others.rstrip("]").split(",")))
            else:
                found.add(requirement.partition(">")[0].lower())
        return found

    assert set(declared) == {*EXTRAS, "dev", "docs"}
    for extra, modules in EXTRAS.items():
        assert set().union(*(owners[module] for module in modules)) == distributions(extra), extra


def test_a_module_that_is_there_and_broken_is_not_taken_for_missing() -> None:
    assert extras.missing_extra(ModuleNotFoundError("no", name="pyroute2.conntrack")) is None
    assert extras.missing_extra(ImportError("broken", name="pyroute2")) is None
    assert extras.missing_extra(ModuleNotFoundError("no", name="somebody")) is None
    with pytest.raises(MissingExtraError, match="--pcap needs the Python package scapy"):
        raise extras.missing_extra(ModuleNotFoundError("no", name="scapy"), "--pcap") or AssertionError
