"""README is short, names every command, and begins with the two that work on a new machine."""

from __future__ import annotations

import re

from kproxy.cli.main import COMMANDS
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs" / "commands.md").read_text()


def named(text: str) -> set[str]:
    """The commands that a text names as code."""
    return {word for code in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"\bkproxy ([a-z-]+)", code)}


def test_every_command_is_in_it_and_in_the_list_and_every_command_there_exists() -> None:
    assert named(README) == set(COMMANDS)
    assert named(PAGE) == set(COMMANDS)


def test_the_two_commands_are_the_first_and_make_has_them() -> None:
    first = re.findall(r"```\w+\n(.*?)```", README, re.DOTALL)[0]
    targets = re.findall(r"^make (\w+)", first, re.MULTILINE)
    assert targets == ["demo", "test"]
    rules = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", rules, re.MULTILINE) for target in targets)


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 60
    assert "docs/pictures/kproxy.svg" in README
