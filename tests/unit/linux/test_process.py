"""Child processes: much text in and out, and every way in which one fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kproxy.linux.errors import ToolFailedError, ToolMissingError
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run, stream
from kproxy.linux.programs import find_program, not_found

HERE = Namespace.current()


def test_megabytes_go_in_and_come_out() -> None:
    text = "".join(f"-A KUBE-SERVICES -d 10.{n >> 8 & 255}.{n & 255}.1/32 -j ACCEPT\n" for n in range(60_000))
    done = run(HERE, ["cat"], text=text, timeout=60)
    assert (done.code, done.stdout == text, done.stderr) == (0, True, "")


def test_both_outputs_and_the_code() -> None:
    done = run(HERE, ["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=60)
    assert (done.code, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_bytes_that_are_no_utf8_survive() -> None:
    done = run(HERE, ["printf", r"\377"], timeout=60)
    assert done.stdout.encode(errors="surrogateescape") == b"\xff"


def test_messages_are_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert run(HERE, ["sh", "-c", "echo $LC_ALL"], timeout=60).stdout == "C\n"


def test_what_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolMissingError, match="kp-no-such-tool is not in PATH"):
        run(HERE, ["kp-no-such-tool"], timeout=1)
    plain = tmp_path / "plain"
    plain.write_text("")
    with pytest.raises(ToolMissingError, match="cannot be executed"):
        run(HERE, [str(plain)], timeout=1)
    assert not_found("iptables-save").startswith("iptables-save is not in PATH, nor in /usr/local/sbin")


def test_what_administrators_use_is_found_without_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert find_program("iptables-save") == "/usr/sbin/iptables-save"
    assert run(HERE, ["iptables-save", "--version"], timeout=60).code == 0
    mine = tmp_path / "iptables-save"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program("iptables-save") == str(mine), "PATH comes first"


def test_a_tool_does_not_hear_of_ctrl_c() -> None:
    """A terminal sends SIGINT to the whole process group of whoever is in the foreground."""
    text = run(HERE, ["sh", "-c", "cat /proc/self/stat"], timeout=60).stdout
    assert int(text.rpartition(")")[2].split()[2]) != os.getpgid(0)


def test_a_program_that_does_not_end() -> None:
    with pytest.raises(ToolFailedError, match="sleep had not ended after 0 s and was stopped"):
        run(HERE, ["sleep", "60"], timeout=0.1)


def test_much_output_comes_in_pieces() -> None:
    pieces = list(stream(HERE, ["sh", "-c", "yes $X | head -c 3000000"], timeout=60, max_octets=1 << 22, environment=X))
    assert len(pieces) > 10
    assert b"".join(pieces) == (b"it\n" * 1_000_000)


X = {"X": "it"}


def test_a_stream_that_fails_is_too_long_or_too_slow() -> None:
    with pytest.raises(ToolFailedError, match="sh: no way"):
        list(stream(HERE, ["sh", "-c", "echo out; echo no way >&2; exit 3"], timeout=60, max_octets=99))
    with pytest.raises(ToolFailedError, match="yes printed more than 1 MiB and was stopped"):
        list(stream(HERE, ["yes"], timeout=60, max_octets=1 << 20))
    with pytest.raises(ToolFailedError, match="sleep had not ended after 0 s and was stopped"):
        list(stream(HERE, ["sleep", "60"], timeout=0.1, max_octets=99))
    with pytest.raises(ToolMissingError, match="kp-no-such-tool is not in PATH"):
        list(stream(HERE, ["kp-no-such-tool"], timeout=1, max_octets=99))


def test_a_reader_that_ends_early_ends_the_program(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    os.mkfifo(ended)
    # The FIFO's other end is the program's alone: it is at its end when the program is.
    pieces = stream(HERE, ["sh", "-c", f"exec 5> {ended}; yes"], timeout=60, max_octets=1 << 30)
    with open(os.open(ended, os.O_RDONLY | os.O_NONBLOCK), "rb") as other:
        next(pieces)
        os.set_blocking(other.fileno(), True)
        pieces.close()  # type: ignore[attr-defined]
        assert other.read() == b""
