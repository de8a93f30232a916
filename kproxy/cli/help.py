"""`kproxy help`: what --help says, and the same as manual pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kproxy.cli.manpages import manual_pages
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
