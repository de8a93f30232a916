"""`kproxy help`, `version` and `completion`, and what a shell is answered when the Tab key is pressed."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from typing import Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from kproxy import KUBE_PROXY_VERSION, __version__
from kproxy.cli.loading import COMPLETE
from kproxy.cli.output import output_option, write_output, write_result
from kproxy.errors import KproxyError


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


@click.command("version")
@output_option
def version(output_format: str) -> None:
    """Show the version, and that of the kube-proxy whose rules are rendered.

    \b
    Examples:
      kproxy version
      kproxy version -o json
    """
    found = {"version": __version__, "kubeProxy": KUBE_PROXY_VERSION, "python": platform.python_version()}
    lines = [f"kproxy {__version__}, as kube-proxy {KUBE_PROXY_VERSION}"]
    write_result("Version", found, output_format, lines)


class _OrFiles(ShellComplete):
    """Offers files where nothing else fits: most values of kproxy's flags are files."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        try:
            found = super().get_completions(args, incomplete)
        except KproxyError:  # a command whose extra is not installed
            found = []
        return found or [CompletionItem(incomplete, type="file")]


SHELLS: Final[dict[str, type[ShellComplete]]] = {
    shell.name: type(shell.__name__, (_OrFiles, shell), {}) for shell in (BashComplete, ZshComplete, FishComplete)
}


def install() -> None:
    """Has click complete with these."""
    for shell in SHELLS.values():
        add_completion_class(shell)


@click.command("completion")
@click.argument("shell", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Print the script by which a shell completes kproxy's commands and flags, and files elsewhere.

    \b
    Examples:
      source <(kproxy completion bash)
      kproxy completion bash > ~/.local/share/bash-completion/completions/kproxy
      kproxy completion zsh > "${fpath[1]}/_kproxy"
      kproxy completion fish > ~/.config/fish/completions/kproxy.fish
    """
    made = SHELLS[shell](click.get_current_context().find_root().command, {}, "kproxy", COMPLETE)
    write_output(made.source_template % made.source_vars() + "\n", None)
