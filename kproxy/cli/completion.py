"""`kproxy completion`, and what a shell is answered when the Tab key is pressed."""

from __future__ import annotations

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

from kproxy.cli.loading import COMPLETE
from kproxy.cli.output import write_output
from kproxy.errors import KproxyError


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
def command(shell: str) -> None:
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
