"""The launcher and the daemon behind it: the plugin's answers, and the plugin itself when nobody listens."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from kproxy.cni.install import compile_launcher, install_launcher, install_node_launcher
from kproxy.cni.server import CniServer, CniServerError
from kproxy.linux.namespace import Namespace
from kproxy.overlay.errors import Code
from tests.support.cni import client
from tests.support.cni.client import Runtime, configuration, finish, ip, namespaces
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.root


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[tuple[Runtime, dict[str, str], Path]]:
    launcher = install_launcher(tmp_path / "bin", client.PLUGIN)
    with namespaces("node", "a", "b") as names, mock.patch.object(client, "PLUGIN", launcher):
        yield Runtime(names["node"], tmp_path / "data", configuration(), executed=True), names, Path(f"{launcher}.sock")


def test_without_a_daemon_the_plugin_itself_is_executed(launched: tuple[Runtime, dict[str, str], Path]) -> None:
    runtime, names, _ = launched
    assert runtime.call("ADD", netns=names["a"]).result["ips"]
    assert runtime.call("ADD", netns=names["a"]).error == Code.ALREADY_ATTACHED
    assert runtime.call("DEL", netns=names["a"]).code == 0


def test_with_a_daemon_it_is_asked(launched: tuple[Runtime, dict[str, str], Path]) -> None:
    runtime, names, path = launched
    # A plugin that cannot be executed shows that it is not.
    with mock.patch.object(client, "PLUGIN", install_launcher(path.parent, Path("/nonexistent"))):
        answer = runtime.call("VERSION")
        assert answer.error == Code.IO_FAILURE
        # The daemon's own namespace does not matter: the request is carried out where the launcher is.
        with Namespace.named(names["b"]) as elsewhere, CniServer(str(path), elsewhere):
            assert oct(path.stat().st_mode & 0o777) == "0o600"
            result = runtime.call("ADD", netns=names["a"]).result
            assert "cni0" in ip("-n", names["node"], "link")
            assert "cni0" not in ip("-n", names["b"], "link")
            assert runtime.call("CHECK", netns=names["a"], prevResult=result).code == 0
            assert runtime.call("ADD", netns="/run/netns/kp-none", container="c2").error == Code.UNKNOWN_CONTAINER
            many = [runtime.start(runtime.environment("VERSION", "c", ""), {}) for _ in range(20)]
            assert all(finish(process).code == 0 for process in many)
            assert runtime.call("DEL", netns=names["a"]).code == 0
        assert not path.exists()


def test_on_a_node_without_kproxy_only_the_daemon_can_answer(
    launched: tuple[Runtime, dict[str, str], Path], tmp_path: Path
) -> None:
    runtime, names, _ = launched
    path = tmp_path / "run" / "cni.sock"
    with mock.patch.object(client, "PLUGIN", install_node_launcher(tmp_path / "node", str(path))):
        for command, code in (
            ("ADD", Code.TRY_AGAIN_LATER), ("DEL", Code.TRY_AGAIN_LATER), ("CHECK", Code.TRY_AGAIN_LATER),
            ("GC", Code.TRY_AGAIN_LATER), ("STATUS", Code.NOT_AVAILABLE),
        ):  # fmt: skip
            answer = runtime.call(command, netns=names["a"], cniVersion="1.0.0")
            assert answer.error == code
            assert set(answer.document) == {"cniVersion", "code", "msg", "details"}
            assert answer.document["cniVersion"] == "1.0.0"
            assert "No such file" in answer.text
        alone = runtime.call("VERSION", raw={"cniVersion": "0.4.0"}).result
        with Namespace.current() as here, CniServer(str(path), here):
            assert runtime.call("VERSION", raw={"cniVersion": "0.4.0"}).result == alone
            assert runtime.call("ADD", netns=names["a"]).result
            assert runtime.call("DEL", netns=names["a"]).code == 0


def test_a_daemon_does_not_need_to_see_the_path_of_the_namespace(
    launched: tuple[Runtime, dict[str, str], Path], tmp_path: Path
) -> None:
    runtime, names, path = launched
    hidden = tmp_path / "netns"
    hidden.touch()
    conf = runtime.configuration()
    environment = runtime.environment("ADD", "c1", str(hidden))
    launcher = ["unshare", "--mount", "--propagation", "private", "sh", "-ec",
                f"mount --bind /run/netns/{names['a']} {hidden}; exec {client.PLUGIN}"]  # fmt: skip
    with Namespace.named(names["node"]) as node, CniServer(str(path), node):
        done = node.call(
            lambda: subprocess.run(
                launcher, input=json.dumps(conf), env=environment, capture_output=True, text=True, check=False
            )
        )
        assert done.returncode == 0, done.stdout
        assert json.loads(done.stdout)["interfaces"][2]["sandbox"] == str(hidden)
        assert "10.244.1.2" in ip("-n", names["a"], "address")
        (tmp_path / "file").touch()
        assert runtime.call("ADD", netns=str(tmp_path / "file"), container="c2").error == Code.INVALID_ENVIRONMENT
        assert runtime.call("DEL", netns=names["a"]).code == 0


@pytest.mark.parametrize("stage", ["accepts nobody", "does not answer", "goes away"])
def test_a_daemon_that_hangs_or_goes_away_means_try_again_later(
    launched: tuple[Runtime, dict[str, str], Path], tmp_path: Path, stage: str
) -> None:
    runtime, names, path = launched
    launcher = tmp_path / "impatient"
    compile_launcher(launcher, {"SOCKET": str(path), "TIMEOUT": "1"})
    path.parent.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as daemon, mock.patch.object(client, "PLUGIN", launcher):
        daemon.bind(str(path))
        daemon.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(2 if stage == "accepts nobody" else 0)]
        for each in waiting:  # the queue of those who are not yet accepted is full
            each.setblocking(False)
            each.connect_ex(str(path))
        # More than the socket holds, so that the launcher writes when the daemon has gone.
        conf = runtime.configuration(padding="x" * 1_000_000)
        process = runtime.start(runtime.environment("ADD", "c1", names["a"]), conf)
        if stage == "goes away":
            daemon.accept()[0].close()
        answer = finish(process)
        assert answer.error == Code.TRY_AGAIN_LATER
        for each in waiting:
            each.close()


def test_a_socket_in_use_is_left_alone_and_a_stale_one_replaced(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with Namespace.current() as here:
        with CniServer(str(path), here), pytest.raises(CniServerError, match="already"), CniServer(str(path), here):
            pass
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
        with CniServer(str(path), here):
            pass


def test_garbage_on_the_socket_does_no_harm(launched: tuple[Runtime, dict[str, str], Path]) -> None:
    runtime, _, path = launched
    with Namespace.current() as here, CniServer(str(path), here):
        for garbage in (b"", b"x", b"\xff" * 8, b"\0" * 8, b"\1\0\0\0\1\0\0\0"):
            with socket.socket(socket.AF_UNIX) as client_socket:
                client_socket.connect(str(path))
                client_socket.sendall(garbage)
        assert runtime.call("VERSION").result


def test_a_large_configuration_passes(launched: tuple[Runtime, dict[str, str], Path]) -> None:
    runtime, _, path = launched
    large = dataclasses.replace(runtime, conf={**runtime.conf, "padding": "x" * 300_000})
    assert large.call("STATUS").code == 0, "executed"
    with Namespace.current() as here, CniServer(str(path), here):
        assert large.call("STATUS").code == 0, "asked"


def test_the_plugin_is_fit_for_a_runtime_with_a_bare_environment(tmp_path: Path) -> None:
    done = subprocess.run(
        [client.PLUGIN], input=json.dumps({"cniVersion": "1.1.0"}), text=True, capture_output=True, check=False,
        env={"CNI_COMMAND": "VERSION"}, cwd=os.fspath(tmp_path),
    )  # fmt: skip
    assert json.loads(done.stdout)["supportedVersions"]


def test_without_anything_of_cni_it_says_what_it_is_and_waits_for_no_input(tmp_path: Path) -> None:
    launcher = install_launcher(tmp_path / "bin", client.PLUGIN)
    bare = {key: value for key, value in os.environ.items() if not key.startswith("CNI_")}
    for program in (client.PLUGIN, launcher):
        process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=bare, text=True
        )
        with process:
            assert process.wait(timeout=PATIENCE) == 0, "with standard input still open"
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read() == ""
            assert "0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0" in process.stderr.read()


@pytest.mark.slow
def test_a_daemon_that_is_killed_leaves_nothing_that_del_does_not_clean(
    launched: tuple[Runtime, dict[str, str], Path],
) -> None:
    runtime, names, path = launched
    code = (
        "import sys, threading; from kproxy.cni.server import CniServer; from kproxy.linux.namespace import Namespace\n"
        "with Namespace.current() as here, CniServer(sys.argv[1], here): threading.Event().wait()"
    )
    conf = runtime.configuration()
    codes = set()
    for step in range(4):
        daemon = subprocess.Popen([sys.executable, "-c", code, str(path)])
        try:
            until = time.monotonic() + PATIENCE
            while not _listens(path):
                assert time.monotonic() < until
                time.sleep(0.01)
            started = [
                runtime.start(runtime.environment("ADD", f"c{label}{n}", names[label], f"net{n}"), conf)
                for n in range(3)
                for label in ("a", "b")
            ]
            time.sleep(step * 0.003)
        finally:
            daemon.kill()
            daemon.wait()
        for process in started:
            answer = finish(process)
            if answer.code:
                codes.add(answer.error)
        for n in range(3):
            for label in ("a", "b"):
                again = runtime.call("ADD", container=f"c{label}{n}", netns=names[label], ifname=f"net{n}")
                assert again.code == 0 or again.error == Code.ALREADY_ATTACHED, again.document
                assert runtime.call("DEL", container=f"c{label}{n}", netns=names[label], ifname=f"net{n}").code == 0
        assert runtime.state()["attachments"] == {}
        assert "net" not in ip("-n", names["a"], "-br", "link")
    assert codes <= {Code.TRY_AGAIN_LATER}, "whoever was cut off is told to try again"


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
