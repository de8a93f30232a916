"""`kproxy help`: what --help says, and the same as manual pages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from kproxy import __version__
from kproxy.cli.output import OutputError, write_files, write_page


@click.command("help")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.option("--man", "directory", metavar="DIR", help="Write manual pages of all commands into this directory.")
def command(words: Sequence[str], directory: str | None) -> None:
    """Show the help of a command, or write all of it as manual pages.

    \b
    Examples:
      kproxy help trace
      kproxy help lab up
      kproxy help --man ~/.local/share/man/man1 && man kproxy-trace
    """
    context = click.get_current_context().find_root()
    if directory is not None:
        if words:
            raise click.UsageError("--man writes the pages of all commands")
        folder = Path(directory)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot make {folder}: {error.strerror}") from error
        pages = {folder / name: text for name, text in manual_pages(context)}
        write_files(pages)
        click.echo(f"{len(pages)} pages in {folder}", err=True)
        return
    for word in words:
        if not isinstance(context.command, click.Group):
            raise click.UsageError(f"{context.command_path} has no commands of its own")
        name, found, _ = context.command.resolve_command(context, [word])
        assert found is not None
        context = click.Context(found, context, info_name=name, max_content_width=context.max_content_width)
    write_page(context.get_help() + "\n")


def manual_pages(root: click.Context) -> Iterator[tuple[str, str]]:
    """The name and text of a page for each command: kproxy.1, kproxy-render.1, kproxy-lab-up.1..."""
    for context in contexts(root):
        name = context.command_path.replace(" ", "-")
        yield f"{name}.1", "\n".join(_page(name, context)) + "\n"


def contexts(context: click.Context) -> Iterator[click.Context]:
    """A command's context, and those of all commands below it."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            found = context.command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from contexts(click.Context(found, context, info_name=name))


def _page(name: str, context: click.Context) -> Iterator[str]:
    command = context.command
    yield f'.TH "{name.upper()}" "1" "" "kproxy {__version__}" "kproxy"'
    yield ".SH NAME"
    yield f"{_escaped(name)} \\- {_escaped(command.get_short_help_str(200).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield f"\\fB{_escaped(context.command_path)}\\fR {_escaped(' '.join(command.collect_usage_pieces(context)))}"
    description, marker, examples = inspect.cleandoc(command.help or "").partition("\b\nExamples:\n")
    yield ".SH DESCRIPTION"
    yield from _paragraphs(description)
    records = [record for each in command.get_params(context) if (record := each.get_help_record(context)) is not None]
    if records:
        yield ".SH OPTIONS"
        for flags, text in records:
            yield from (".TP", f"\\fB{_escaped(flags)}\\fR", _escaped(text) or "\\&")
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                page = f"{name}-{each}"
                yield from (".TP", f"\\fB{_escaped(page)}\\fR(1)", _escaped(found.get_short_help_str(200)))
    if marker:
        yield ".SH EXAMPLES"
        yield from _verbatim(examples)


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs, those after click's mark \\b as they stand."""
    for part in re.split(r"\n\s*\n", text.strip()):
        if part.startswith("\b"):
            yield from _verbatim(part[1:].lstrip("\n"))
        elif part:
            yield ".PP"
            yield _escaped(" ".join(part.split()))


def _verbatim(text: str) -> Iterator[str]:
    yield from (".PP", ".nf")
    yield from (_escaped(line) for line in text.rstrip().splitlines())
    yield ".fi"


def _escaped(text: str) -> str:
    """Text as roff takes it: a hyphen is one that can be copied, and no line is taken for a request."""
    found = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{found}" if found.startswith((".", "'")) else found
