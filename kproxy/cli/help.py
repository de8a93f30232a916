"""`kproxy help`: what --help says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click


@click.command("help")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
def command(words: Sequence[str]) -> None:
    """Show the help of a command.

    \b
    Examples:
      kproxy help trace
      kproxy help lab up
    """
    context = click.get_current_context().find_root()
    for word in words:
        if not isinstance(context.command, click.Group):
            raise click.UsageError(f"{context.command_path} has no commands of its own")
        name, found, _ = context.command.resolve_command(context, [word])
        assert found is not None
        context = click.Context(found, context, info_name=name, max_content_width=context.max_content_width)
    click.echo(context.get_help())


def contexts(context: click.Context) -> Iterator[click.Context]:
    """A command's context, and those of all commands below it."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            found = context.command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from contexts(click.Context(found, context, info_name=name))
