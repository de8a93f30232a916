"""What commands say of things that were not seen: `--assume`, the lines above an answer, and the exit code."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import click

from kproxy.cli.output import report_note
from kproxy.cluster.evidence.unseen import CHAIN, IPSET, THINGS, Assumed, Unseen, headlines, is_thing, suspected
from kproxy.dataplane.model.verdict import INDETERMINATE

COMPLETE: Final = "complete"
_EMPTY: Final = "empty"


def split_assumed(texts: Sequence[str]) -> tuple[Assumed, list[str]]:
    """What `--assume` says of unseen things, and the rest of its texts.

    Raises:
        click.UsageError: a text says of something unknown that it is empty.
    """
    empty, rest = set(), []
    for text in texts:
        what, equals, answer = text.rpartition("=")
        if equals and answer == _EMPTY:
            if not is_thing(what):
                known = ", ".join(f"{each} NAME" if each in (IPSET, CHAIN) else each for each in THINGS)
                raise click.UsageError(f"--assume: {what!r} is nothing that may be unseen (there is: {known})")
            empty.add(what)
        elif text != COMPLETE:
            rest.append(text)
    return Assumed(COMPLETE in texts, frozenset(empty)), rest


def _read_assumed(_context: click.Context, _option: click.Parameter, texts: Sequence[str]) -> Assumed:
    assumed, rest = split_assumed(texts)
    if rest:
        raise click.UsageError(f"--assume: complete or WHAT=empty expected, not {rest[0]!r}")
    return assumed


assume_option = click.option(
    "--assume", "assumed", metavar="complete|WHAT=empty", multiple=True, callback=_read_assumed,
    help="Take what was not seen to be empty: all of it, or one thing (documentation: Evidence).",
)  # fmt: skip
"""`--assume` of commands that ask no rule, as the argument `assumed`: an `Assumed`."""


def unseen_lines(unseen: Iterable[Unseen], same: Collection[tuple[str, str]] = ()) -> list[str]:
    """The lines of an answer that say what was not seen; `same` as for `headlines`."""
    return [click.style(line, fg="yellow") for line in headlines(tuple(unseen), same)]


def tell_unseen(unseen: Iterable[Unseen]) -> None:
    """The suspected things as notes, for answers of one line a packet."""
    for line in headlines(suspected(unseen)):
        report_note(line)


def exit_with(*, found: bool, undecided: bool, unseen: Iterable[Unseen] = ()) -> None:
    """Ends the command with 1 if something was found; else with 2 if anything is undecided, or suspected and not seen;
    returns if neither is so."""
    if found:
        raise click.exceptions.Exit(1)
    if undecided or suspected(unseen):
        raise click.exceptions.Exit(2)


def expected_exit(verdict: str, found: Iterable[str]) -> int:
    """The exit code for an expected verdict, given all that may become of packets: 0 if it is certain, 1 if another one
    is, at least with some chance, 2 if it is open."""
    others = set(found) - {verdict}
    return 0 if not others else 2 if others == {INDETERMINATE} else 1
