"""`kproxy apiserver` as a process: when it is ready, how it ends, what it refuses."""

from __future__ import annotations

import signal
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest

from kproxy.cli.apiserver import parse_cidrs
from kproxy.cli.options import parse_listen
from kproxy.errors import InputError
from tests.support.cli import KPROXY
from tests.support.waiting import PATIENCE


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [*KPROXY, "apiserver", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_says_when_it_is_ready_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    process = start("--data", tmp_path / "data", "--listen", "127.0.0.1:0", "--write-kubeconfig", tmp_path / "kc")
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("ready: https://127.0.0.1:"), line
    assert (tmp_path / "kc").stat().st_mode & 0o777 == 0o600
    context = ssl.create_default_context(cafile=str(tmp_path / "data" / "ca.crt"))
    assert "PRIVATE KEY" not in (tmp_path / "data" / "ca.crt").read_text()
    with urllib.request.urlopen(line.split()[1] + "/readyz", context=context) as answer:
        assert answer.read() == b"ok"
    second = start("--data", tmp_path / "data", "--listen", "127.0.0.1:0")
    _, errors = second.communicate(timeout=PATIENCE)
    assert (second.returncode, "another server uses this directory" in errors) == (1, True)
    process.send_signal(number)
    out, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, "Traceback" in errors) == (0, "", False)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--listen", "127.0.0.1:0"], 2, "--data"),
        (["--data", "d", "--listen", "nonsense"], 2, "ADDRESS:PORT"),
        (["--data", "d", "--history", "nan"], 2, "--history"),
        (["--data", "d", "--history", "inf"], 2, "--history"),
        (["--data", "d", "--listen", "127.0.0.1:70000"], 2, "ADDRESS:PORT"),
        (["--data", "d", "--token-file", "nowhere"], 2, "nowhere"),
        (["--data", "d", "--service-cluster-ip-range", "10.0.0.0"], 2, "too small"),
        (["--data", "d", "--controllers", "*,-nonsense"], 2, "no controller nonsense; there are clusterrole"),
        (["--data", "/proc/none/x", "--listen", "127.0.0.1:0"], 2, "/proc/none"),
        (["--data", "d", "--listen", "192.0.2.7:0"], 1, "cannot listen"),
    ],
)
def test_refusals(tmp_path: Path, arguments: list[str], code: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    process = start(*arguments)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, text in errors, "Traceback" in errors) == (code, True, False), errors


def test_parse() -> None:
    assert parse_listen("[::1]:0") == ("::1", 0)
    assert parse_listen(":6443") == ("0.0.0.0", 6443)
    assert parse_listen("localhost:1") == ("127.0.0.1", 1)
    assert parse_cidrs("10.0.0.0/24, fd00::/112") == ("10.0.0.0/24", "fd00::/112")
    for bad in ("10.0.0.0/24,10.1.0.0/24", "x", "10.0.0.1/24"):
        with pytest.raises(InputError):
            parse_cidrs(bad)
