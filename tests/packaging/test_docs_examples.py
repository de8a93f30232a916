"""Every example of the documentation works as it stands there: tests/support/docs.py says how pages mark them."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from kproxy.cli.main import group
from tests.support.cli import run_kproxy
from tests.support.docs import AS_ROOT, DOCS, blocks, fits, pages, run_page
from tests.support.paths import REFERENCE, ROOT

PLAIN = [page for page in pages() if AS_ROOT not in page.read_text()]
SAVE = (DOCS / "examples" / "worker-1.save").read_text()
RESTORE = (REFERENCE / "minikube" / "kube-proxy.v4.restore").read_text()
QUICK = {"README.md", "docs/first-five-minutes.md"}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if name(page) in QUICK else pytest.mark.slow, id=name(page)) for page in PLAIN]
)
def test_examples(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), re.DOTALL))
def test_python_examples_run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


NFT = "table inet old {\n}\ntable ip shop {\n\tset clients {\n\t\ttype ipv4_addr\n\t}\n}\n"


@pytest.mark.parametrize(
    ("page", "given", "shown"),
    [
        ("netfilter", {"text": SAVE, "restore_text": RESTORE}, ":KUBE-SERVICES"),
        ("nft-text", {"text": NFT}, "table ip shop {"),
        ("dataplane", {"text": SAVE}, "1/2 DROP"),
    ],
)
def test_python_examples_of_the_core(
    page: str, given: dict[str, str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    exec(compile(code, f"docs/{page}.md", "exec"), dict(given))
    assert shown in capsys.readouterr().out


FIELDS = re.compile(r"<!-- (?P<name>\w+) -->\n(?P<table>.*?)<!-- end of (?P=name) -->", re.DOTALL)


def keys(value: Any) -> Iterator[str]:
    """The names of all fields in a JSON document."""
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from keys(child)
    yield from value if isinstance(value, dict) else ()


@pytest.mark.parametrize("name", ["render", "explain"])
def test_the_fields_of_json_are_those_that_are_printed(name: str) -> None:
    table = next(
        found["table"] for found in FIELDS.finditer((DOCS / "formats.md").read_text()) if found["name"] == name
    )
    described = set(re.findall(r"`(\w+)`", table))
    shop = ("-f", "shop.yaml", "--config", "kube-proxy.yaml", "--node", "worker-1")
    how = ("--format", "json") if name == "render" else ("--service", "shop/web", "-o", "json")
    printed: set[str] = set()
    for mode in ("iptables", "nftables"):
        done = run_kproxy(name, *shop, "--mode", mode, *how, cwd=DOCS / "examples")
        assert done.returncode == 0, done.stderr
        printed |= set(keys(json.loads(done.stdout)))
    assert printed - {"apiVersion", "kind"} <= described


@pytest.mark.slow
def test_recorded_sessions_show_what_is_printed(tmp_path: Path) -> None:
    sessions: Any = runpy.run_path(str(ROOT / "scripts" / "docs" / "sessions.py"))
    sessions["main"](tmp_path)
    for picture in sorted(tmp_path.glob("*.svg")):
        kept = (DOCS / "pictures" / picture.name).read_text()
        assert sessions["text_of"](kept) == sessions["text_of"](picture.read_text()), (
            "scripts/docs/sessions.py writes it"
        )
        loaded = re.findall(r"url\([\"']?(?!#)|@import|<image|xlink:href|\bsrc=", kept)
        assert loaded == [], picture.name
    assert len(list(tmp_path.glob("*.svg"))) == 2


def test_what_stands_for_the_rest() -> None:
    assert fits("a\n...\nb...", "a\nx\ny\nbc\n")
    assert fits("a\n...\nb", "a\nb\n")
    assert not fits("a\nb", "a\nx\nb\n")
    assert not fits("a\n...", "x\na\n")


def kproxy_calls() -> list[tuple[str, list[str]]]:
    """Every `kproxy ...` in the blocks of shell of all pages, as where it is and its words."""
    calls = []
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        for block in blocks(page):
            if block.language not in ("sh", "shell"):
                continue
            for line in block.text.replace("\\\n", " ").splitlines():
                words = list(shlex.shlex(line, posix=True, punctuation_chars="();<>|&"))
                while "kproxy" in words:
                    if (
                        words[words.index("kproxy") - 1] == "kubectl"
                    ):  # whose plugin takes options before the command, too
                        break
                    words = words[words.index("kproxy") + 1 :]
                    end = next((at for at, word in enumerate(words) if set(word) <= set("();<>|&")), len(words))
                    calls.append((f"{page.name}:{block.line}: kproxy {' '.join(words[:end])}", words[:end]))
    return calls


def test_there_are_no_prompts_in_what_is_copied() -> None:
    shown = [(page.name, block) for page in [ROOT / "README.md", *DOCS.rglob("*.md")] for block in blocks(page)]
    assert [where for where, block in shown if block.language == "console"] == []
    code = [(where, block) for where, block in shown if block.language in ("sh", "shell")]
    assert [(where, block.line) for where, block in code if re.search(r"^[$>] ", block.text, re.MULTILINE)] == []


def test_what_is_not_run_has_commands_and_options_that_exist() -> None:
    calls = kproxy_calls()
    assert len(calls) > 100
    wrong = []
    for where, words in calls:
        command: click.Command = group
        context = click.Context(group)
        try:
            while True:
                _, words, _ = command.make_parser(context).parse_args(words)
                if not isinstance(command, click.Group) or not words:
                    break
                found = command.get_command(context, words[0])
                assert found is not None, f"there is no command {words[0]}"
                command, words, context = found, words[1:], click.Context(found, context)
        except (click.UsageError, AssertionError) as error:
            wrong.append(f"{where}: {error}")
    assert wrong == []
