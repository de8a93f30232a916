"""`kubectl kproxy ...`: kproxy as a plugin of kubectl, with kubectl's flags in the forms that kubectl takes.

kubectl executes `kubectl-kproxy` with everything that follows `kproxy` on its command line. Before click reads it,

- kubectl's flags in front of the command are moved behind it: `kubectl kproxy --context prod render`;
- `-n=NS`, `-s=URL` and `--insecure-skip-tls-verify=true`, which pflag takes, become what click takes;
- flags that only say how kubectl itself works are left out, and those that cannot be honoured are refused.

Without `-f`, commands that read a cluster ask the API server that kubectl would ask.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import click

from kproxy.agent.config.flags import parse_boolean
from kproxy.cli.connection import KUBECTL_FLAGS, PLUGIN

PROGRAM: Final = "kubectl kproxy"

_SWITCH: Final = "--insecure-skip-tls-verify"
_VALUED: Final = frozenset(
    {"--kubeconfig", "--context", "-n", "--namespace"}
    | {name for names in KUBECTL_FLAGS.values() for name in names if name != _SWITCH}
)
_WITHOUT_EFFECT: Final = frozenset(
    {"--cache-dir", "--log-flush-frequency", "--profile", "--profile-output", "--v", "--vmodule", "-v", "--kuberc"}
)
"""Flags with values that change nothing of an answer."""

_SWITCHES_WITHOUT_EFFECT: Final = frozenset({"--disable-compression"})

_REFUSED: Final = {
    "--request-timeout": "a call that is silent for 60 seconds fails",
    "--match-server-version": "kproxy is no kubectl of any version",
    "--warnings-as-errors": "kproxy does not show the server's warnings",
    "--as-user-extra": "it is not supported",
}


def run_plugin(group: click.Group, commands: Collection[str], arguments: Sequence[str]) -> object:
    """Runs a command of `group` for kubectl; what it returns, as click does."""
    return group.main(plugin_arguments(arguments, commands), PROGRAM, standalone_mode=False, obj=PLUGIN)


def plugin_arguments(arguments: Sequence[str], commands: Collection[str]) -> list[str]:
    """What kubectl handed over, as kproxy's own command line.

    Args:
        commands: the names of kproxy's commands.

    Raises:
        click.UsageError: a flag of kubectl that cannot be honoured.
    """
    front: list[str] = []
    behind: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            behind += [word, *rest]
            break
        name, equals, value = word.partition("=")
        into = behind if behind else front
        if name in _REFUSED:
            raise click.UsageError(f"kubectl's {name} cannot be honoured: {_REFUSED[name]}")
        if name in _WITHOUT_EFFECT:
            if not equals and rest:
                rest.pop(0)
        elif name in _SWITCHES_WITHOUT_EFFECT:
            continue
        elif name == _SWITCH:
            into += [name] if not equals or is_on(name, value) else []
        elif name in _VALUED and (equals or rest):
            into += [name, value if equals else rest.pop(0)]
        elif word in commands and not behind:
            behind = [word]
        else:
            into.append(word)
    return [*behind[:1], *front, *behind[1:]]


def is_on(name: str, text: str) -> bool:
    """What pflag reads of a switch, `true`, `0`... Raises click.UsageError: it is neither."""
    try:
        return parse_boolean(text)
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from error
