"""`--help` of every command, on a terminal of 80 columns."""

from __future__ import annotations

import click
import pytest

from kproxy.cli.help import contexts
from kproxy.cli.main import group
from tests.support.cli import Run

# A terminal's last two columns are left free.
CONTEXTS = list(contexts(click.Context(group, info_name="kproxy", terminal_width=78)))


def test_every_command_is_tried() -> None:
    assert len(CONTEXTS) >= 30


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: str(context.command_path))
def test_help_fits_in_80_columns(context: click.Context) -> None:
    text = context.get_help()
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "docs/" not in text, "who installs by pip has no docs/"


@pytest.mark.parametrize(
    "context", [each for each in CONTEXTS if isinstance(each.command, click.Group)], ids=lambda each: each.command_path
)
def test_the_list_of_commands_has_whole_sentences(context: click.Context) -> None:
    listed = context.get_help().partition("Commands:\n")[2]
    assert listed
    assert "..." not in listed


def test_a_hidden_option_is_never_suggested(kproxy: Run) -> None:
    done = kproxy("explain", "--as-grup", "x")
    assert done.returncode == 2
    assert "No such option" in done.stderr
    assert "--as-" not in done.stderr.replace("--as-grup", "")
    done = kproxy("explain", "--servce", "x")
    assert "--service" in done.stderr
    assert "--server" not in done.stderr
