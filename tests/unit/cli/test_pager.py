"""Long text on a terminal goes through a pager: when, which one, and how it may end."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

import pytest

from kproxy.cli import pager
from tests.support import paths

ROWS, COLUMNS = 8, 80
MARKING = "sed 's/^/| /'"

# A session with the terminal as its own, as a shell in it has. With `background`, as with `&`.
PROGRAM = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
if sys.argv[1] == "background" and (child := os.fork()):
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
if sys.argv.pop(1) == "background":
    os.setpgid(0, 0)
from kproxy.__main__ import main
main()
"""


def on_terminal(*words: str, keys: str = "", job: str = "foreground", **environment: str) -> tuple[int, str]:
    """The exit code of `kproxy WORDS`, and what its terminal shows.

    At the word `ready` SIGTERM comes if `keys` say so, else they are typed.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, job, *words],
        cwd=paths.ROOT, env={"TERM": "xterm", **kept, **environment},
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
            if keys and b"ready" in shown:
                if keys == "SIGTERM":
                    process.terminate()
                else:
                    os.write(ours, keys.encode())
                keys = ""
    except OSError:  # how Linux says that nobody has the terminal any more
        pass
    finally:
        os.close(ours)
    code = process.wait()
    text = shown.decode().replace("\r\n", "\n")
    assert "Traceback" not in text, text
    return code, text


def marked(text: str) -> bool:
    """Whether every line came through the pager; else none did."""
    found = {line.startswith("| ") for line in text.splitlines()}
    assert len(found) == 1, text
    return found.pop()


@pytest.fixture
def different(tmp_path: Path) -> Sequence[str]:
    """A comparison with more lines than the screen, which ends with 1."""
    rules = (paths.GOLDEN / "minikube" / "expected" / "minikube.v4.save").read_text()
    one, other = tmp_path / "a.save", tmp_path / "b.save"
    one.write_text(rules)
    other.write_text("".join(line for line in rules.splitlines(keepends=True) if "10.96.0.10" not in line))
    return ("diff", "--text", str(one), str(other))


def test_a_long_report_with_its_colours_and_its_exit_code(different: Sequence[str]) -> None:
    code, text = on_terminal(*different, KPROXY_PAGER=MARKING, PAGER="false")
    assert (code, marked(text)) == (1, True)
    assert text.count("\n") > ROWS
    assert "\x1b[31m" in text


def test_a_pager_that_is_left_early_is_no_error(different: Sequence[str]) -> None:
    code, text = on_terminal(*different, PAGER="head -n 2")
    assert (code, text.count("\n")) == (1, 2)


def test_ctrl_c_is_the_pagers(different: Sequence[str]) -> None:
    waits = "echo ready; while :; do sleep 0.05; done"
    code, text = on_terminal(*different, PAGER=f"cat >/dev/null; trap 'echo again; exit 0' INT; {waits}", keys="\x03")
    assert (code, text) == (1, "ready\n^Cagain\n")
    code, text = on_terminal(*different, PAGER=f"cat >/dev/null; {waits}", keys="\x03")
    assert (code, text.strip()) == (1, "ready\n^C")


def test_sigterm_ends_both(tmp_path: Path) -> None:
    script = tmp_path / "pager"
    script.write_text(
        "#!/bin/sh\ncat >/dev/null\ntrap 'echo over; exit' TERM\necho ready\nwhile :; do sleep 0.05; done\n"
    )
    script.chmod(0o755)
    assert on_terminal("--help", PAGER=f"{script} -x", keys="SIGTERM") == (128 + signal.SIGTERM, "ready\nover\n")


@pytest.mark.parametrize(
    ("words", "environment", "paged"),
    [
        (["--help"], {"PAGER": MARKING}, True),
        (["help", "version"], {"PAGER": MARKING}, True),
        (["help", "version"], {"PAGER": MARKING, "LINES": "100"}, False),
        (["--no-pager", "help", "version"], {"PAGER": MARKING}, False),
        (["version", "--no-pager", "--help"], {"PAGER": MARKING}, False),
        (["version", "--help", "--no-pager"], {"PAGER": MARKING}, False),
        (["version"], {"PAGER": MARKING}, False),
        (["version", "--help"], {"PAGER": MARKING, "KPROXY_PAGER": ""}, False),
        (["version", "--help"], {"PAGER": MARKING, "TERM": "dumb"}, False),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_when(words: list[str], environment: dict[str, str], paged: bool) -> None:
    code, text = on_terminal(*words, **environment)
    assert (code, marked(text)) == (0, paged)


def test_json_is_for_programs() -> None:
    code, text = on_terminal("version", "-o", "json", LINES="3", PAGER=MARKING)
    assert (code, marked(text), text[0]) == (0, False, "{")


def test_less_is_told_what_git_tells_it() -> None:
    asked = 'cat >/dev/null; echo "$LESS $LV"'
    assert on_terminal("--help", PAGER=asked) == (0, "FRX -c\n")
    assert on_terminal("--help", PAGER=asked, LESS="-S", LV="x") == (0, "-S x\n")


def test_a_pager_that_is_not_there_costs_no_text() -> None:
    code, text = on_terminal("--help", PAGER="no-such-pager")
    complaint, _, rest = text.partition("\n")
    assert (code, "no-such-pager" in complaint) == (0, True)
    assert rest.startswith("Usage: kproxy ")
    assert "\n  version " in rest


def test_a_job_in_the_background_has_none() -> None:
    code, text = on_terminal("--help", PAGER=MARKING, job="background")
    assert (code, marked(text)) == (0, False)


def test_without_a_choice_it_is_less(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KPROXY_PAGER", "PAGER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert pager._program() == ""
    (tmp_path / "less").touch(mode=0o755)
    assert pager._program() == "less"
    monkeypatch.setenv("PAGER", " cat ")
    assert pager._program() == ""


def test_what_fits_is_counted_in_lines_of_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "3")
    monkeypatch.setenv("COLUMNS", "10")
    for text, fits in {
        "": True, "a\nb\n": True, "a\nb\nc\n": False, "0123456789\na\n": True, "01234567890\n": True,
        "01234567890\na\n": False, "\x1b[31m0123456789\x1b[0m\n\n": True,
    }.items():  # fmt: skip
        assert pager._fits(text) is fits, text
