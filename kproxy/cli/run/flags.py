"""kube-proxy's flags on `kproxy run`, in every form that kube-proxy's command line (pflag) takes.

Before click reads the arguments they are brought into the one form that click and pflag share:

- names with underscores are names with hyphens (WordSepNormalizeFunc of component-base): `--proxy_mode`;
- `-v=2` is `-v 2`;
- a boolean never takes the next argument: `--masquerade-all`, `--masquerade-all=false`, `--cleanup=true`;
- of a flag that is given several times the last one counts, of lists and maps all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from kproxy.agent.config.flags import ACCUMULATE, BOOLEAN, FLAGS
from kproxy.cli.kubectl import is_on

Function = TypeVar("Function", bound=Callable[..., object])

_BOOLEANS: Final = frozenset(f"--{flag.name}" for flag in FLAGS if flag.kind == BOOLEAN)
_VERSION: Final = "--version"


class KubeProxyCommand(click.Command):
    """A command that takes arguments as kube-proxy does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.share_form(args))

    def share_form(self, args: Sequence[str]) -> list[str]:
        """The arguments as click takes them. Raises click.UsageError for an invalid boolean."""
        options = {name: option for option in self.params for name in option.opts if isinstance(option, click.Option)}
        shared: list[str] = []
        rest = iter(args)
        for word in rest:
            if word == "--":
                return [*shared, word, *rest]
            name, equals, value = word.partition("=")
            if not name.startswith("--"):
                short = len(name) == 2 and name in options and not _is_switch(options[name])
                shared += [name, value] if short and equals else [word]
                if short and not equals:
                    shared += [following for following in (next(rest, None),) if following is not None]
                continue
            name = name.replace("_", "-")
            option = options.get(name)
            if option is None:
                shared.append(word)
            elif _is_switch(option):
                if is_on(name, value if equals else "true"):
                    shared.append(name)
                else:
                    shared = [each for each in shared if each != name]
            elif equals or name in _BOOLEANS or name == _VERSION:
                shared.append(f"{name}={value if equals else 'true'}")
            else:
                shared += [name, *(following for following in (next(rest, None),) if following is not None)]
        return shared


def _is_switch(option: click.Option) -> bool:
    """Whether it is one of kproxy's own flags without a value."""
    return bool(option.is_flag)


def kube_proxy_flags(function: Function) -> Function:
    for flag in reversed(FLAGS):
        names = (f"-{flag.name}", f"--{flag.name}") if len(flag.name) == 1 else (f"--{flag.name}",)
        help_text = flag.help or f"Accepted; {flag.no_effect}."
        more: dict[str, Any] = {"multiple": True} if flag.kind in ACCUMULATE else {}
        function = click.option(
            *names, _parameter(flag.name), metavar=flag.kind.upper(), help=help_text, expose_value=True, **more
        )(function)
    return function


def given_flags(parameters: Mapping[str, str | Sequence[str] | None]) -> dict[str, str]:
    """The texts of the flags that were given, by name, from what click made of them."""
    given = {}
    for flag in FLAGS:
        value = parameters.get(_parameter(flag.name))
        if value is None or value == ():
            continue
        given[flag.name] = value if isinstance(value, str) else ",".join(value)
    return given


_OWN_TOO: Final = frozenset(("config_path", "hostname_override", "master", "init_only", "cleanup", "write_config_to"))
"""What `kproxy run` has of kube-proxy's flags under names of its own."""


def is_kube_proxys_own(context: click.Context, environment: Mapping[str, str]) -> bool:
    """Whether `kproxy run` was started as kube-proxy is, which says that the machine's own rules are meant.

    That is: by a kubelet in a Pod (every container has KUBERNETES_SERVICE_HOST) or by systemd as a service (process 1
    is the parent, and INVOCATION_ID is set, systemd.exec(5)), with no options but kube-proxy's, and without a terminal.
    """
    started = "KUBERNETES_SERVICE_HOST" in environment or ("INVOCATION_ID" in environment and os.getppid() == 1)
    others = (
        name
        for name in context.params
        if name not in _OWN_TOO
        and not name.startswith("flag_")
        and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )
    return started and not sys.stdin.isatty() and next(others, None) is None


def _parameter(name: str) -> str:
    return f"flag_{name.replace('-', '_')}"
