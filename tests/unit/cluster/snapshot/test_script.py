"""The script that reads a node, with tools that say what the test wants."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from kproxy.cluster.snapshot.layout import HOST_FILES, host_file
from kproxy.cluster.snapshot.script import read_stream, script, stream_script
from kproxy.errors import InputError

TOOLS = {
    "iptables": "echo 'iptables v1.8.9 (nf_tables)'",
    "iptables-save": "printf '*nat\\nCOMMIT\\n'",
    "iptables-legacy-save": "echo '# legacy'",
    "ip6tables": "echo 'ip6tables v1.8.9 (legacy)'",
    "ip6tables-save": "printf '# no line end'",
    "ip6tables-nft-save": "echo '# nft'",
    "nft": "echo '{\"nftables\": []}'",
    "ipset": "echo 'Kernel error received: Operation not permitted' >&2; echo more >&2; exit 1",
    "ip": 'echo "[\\"$*\\"]"',
    "bridge": "kill -TERM $$",
    "conntrack": 'echo "udp $*"',
    "curl": 'for last; do :; done; printf "%s\\nHTTP 200\\n" "$last"',
    "kube-proxy": "echo Kubernetes v1.36.2",
}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory of programs for PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, body in TOOLS.items():
        (directory / name).write_text(f"#!/bin/sh\n{body}\n")
        (directory / name).chmod(stat.S_IRWXU)
    return directory


def run(shell: str, arguments: list[str], tools: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": f"{tools}:{os.environ['PATH']}", **environment}
    return subprocess.run([shell, *arguments], env=env, capture_output=True, timeout=60, check=False)


SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]


@pytest.mark.parametrize("shell", SHELLS)
def test_it_writes_what_the_tools_print_and_says_what_failed(shell: str, tools: Path, tmp_path: Path) -> None:
    (tmp_path / "collect.sh").write_text(script())
    done = run(shell, [str(tmp_path / "collect.sh"), "n1", str(tmp_path / "out")], tools)
    assert (done.returncode, done.stderr) == (0, b"")
    written = tmp_path / "out/nodes/n1"
    found = {path.relative_to(written).as_posix(): path.read_bytes() for path in written.rglob("*") if path.is_file()}
    assert set(found) <= set(HOST_FILES)
    assert found["iptables-save"] == b"*nat\nCOMMIT\n"
    assert found["ip6tables-save"] == b"# no line end"
    assert found["ip6tables-nft-save"] == b"# nft\n"
    assert found["ip-route.json"] == b'["-json -4 route show table all"]\n["-json -6 route show table all"]\n'
    assert found["conntrack"] == b"udp -L -f ipv4\nudp -L -f ipv6\n"
    assert found["kube-proxy/configz"] == b"http://127.0.0.1:10249/configz\nHTTP 200\n"
    assert b"net/ipv4/ip_forward = " in found["sysctl"]
    assert (found["errors"].splitlines()) == [
        b"ipset-save: Kernel error received: Operation not permitted",
        b"bridge-fdb.json: not done after 20 s",
    ]
    assert not {"ipset-save", "bridge-fdb.json"} & set(found)
    boundary = "@@b"
    stream = run(shell, ["-c", stream_script(boundary)], tools)
    streamed = dict(read_stream([stream.stdout], boundary))
    assert set(streamed) == set(found)
    same = set(found) - {"sysctl"}  # which has counters
    assert {name: streamed[name] for name in same} == {name: found[name] for name in same}


def test_ipvs_is_read_where_the_kernel_has_it(tools: Path, tmp_path: Path) -> None:
    """By ipvsadm where it is installed, which would load the module where the kernel has none."""
    (tmp_path / "collect.sh").write_text(script())
    (tmp_path / "net").mkdir()
    written = tmp_path / "out/nodes/n1"

    def files() -> dict[str, bytes]:
        arguments = [str(tmp_path / "collect.sh"), "n1", str(tmp_path / "out")]
        assert run("sh", arguments, tools, KPROXY_NET=str(tmp_path / "net")).returncode == 0
        return {path.name: path.read_bytes() for path in written.glob("ipvs*")}

    assert files() == {}
    (tmp_path / "net" / "ip_vs").write_text("IP Virtual Server version 1.2.1 (size=4096)\n")
    (tmp_path / "net" / "ip_vs_conn").write_text("Pro FromIP\n")
    listed = {"ipvs": b"IP Virtual Server version 1.2.1 (size=4096)\n", "ipvs-connections": b"Pro FromIP\n"}
    if shutil.which("ipvsadm") is None:
        assert files() == listed
    (tools / "ipvsadm").write_text('#!/bin/sh\necho "$*"\n')
    (tools / "ipvsadm").chmod(stat.S_IRWXU)
    assert files() == {**listed, "ipvs": b"-Sn\n"}


def test_it_keeps_to_its_bounds(tools: Path, tmp_path: Path) -> None:
    (tools / "iptables-save").write_text("#!/bin/sh\nwhile :; do echo 0123456789; done\n")
    (tools / "nft").write_text("#!/bin/sh\nexec sleep 50\n")
    (tmp_path / "collect.sh").write_text(script())
    arguments = [str(tmp_path / "collect.sh"), "n1", str(tmp_path / "out")]
    done = run("sh", arguments, tools, KPROXY_KIB="64", KPROXY_SECONDS="2")
    assert done.returncode == 0
    written = tmp_path / "out/nodes/n1"
    errors = (written / "errors").read_text().splitlines()
    assert "iptables-save: larger than 64 KiB" in errors
    assert "nft: not done after 2 s" in errors
    assert not (written / "iptables-save").exists()
    done = run("sh", arguments, tools, KPROXY_TOTAL="0")
    assert b"ip-addr.json: no time left: 0 s in all" in (written / "errors").read_bytes().splitlines()


def test_busybox_own_tools_are_named(tools: Path, tmp_path: Path) -> None:
    """They print their version and usage, of which the first line tells nothing."""
    (tools / "ip").write_text("#!/bin/sh\necho 'BusyBox v1.35.0 multi-call.' >&2; echo 'Usage: ip' >&2; exit 1\n")
    (tmp_path / "collect.sh").write_text(script())
    assert run("sh", [str(tmp_path / "collect.sh"), "n1", str(tmp_path / "out")], tools).returncode == 0
    errors = (tmp_path / "out/nodes/n1/errors").read_text().splitlines()
    assert "ip-addr.json: ip is BusyBox's, which cannot do this" in errors


@pytest.mark.parametrize("node", ["..", "a/b", "."])
def test_a_node_may_not_be_a_path(node: str, tools: Path, tmp_path: Path) -> None:
    (tmp_path / "collect.sh").write_text(script())
    done = run("sh", [str(tmp_path / "collect.sh"), node, str(tmp_path / "out")], tools)
    assert done.returncode == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"sh: not found\n", "the script's own lines expected, not 'sh: not found'"),
        (b"@@b iptables-save\n*nat\n", "ends in the middle of iptables-save"),
        (b"@@b ../../x\nhello\n\n@@b end\n", "the script writes no '../../x'"),
    ],
)
def test_an_invalid_stream_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(read_stream([data], "@@b"))
    assert list(read_stream([b"@@b sysctl\n\n@@b end\n@@b nft\nx\n@@b drop\n"], "@@b")) == [("sysctl", b"")]
    assert host_file("n", "nft") == "nodes/n/nft"
