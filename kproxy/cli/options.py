"""Options that several commands share: kube-proxy's configuration and mode, families, what hosts can do."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES
from kproxy.cli.loading import gives
from kproxy.cli.objects import RenderChoices
from kproxy.cli.output import report_note
from kproxy.errors import InputError
from kproxy.render import Features
from kproxy.services import IPFamily

_GIVEN_FEATURES = "kproxy.features"

Function = TypeVar("Function", bound=Callable[..., object])

FEATURES = {"nfacct": "nfacct", "random-fully": "random_fully", "object-comments": "object_comments"}


class SecondsRange(click.FloatRange):
    """A number of seconds in a range: no infinity, and no NaN, which every range would let through."""

    name = "seconds range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, as click's ranges."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return number


def exclude(*rules: tuple[object, str]) -> None:
    """Raises click.UsageError with the words of the first of the rules, `(is it broken, words)`, that is broken."""
    for broken, words in rules:
        if broken:
            raise click.UsageError(words)


config_option = click.option(
    "--config", "config_path", metavar="FILE",
    help="KubeProxyConfiguration. Default: kube-proxy's ConfigMap; with manifests without it, the defaults.",
)  # fmt: skip


def mode_option(*, ipvs: bool = False, hidden: bool = False) -> Callable[[Function], Function]:
    """Adds --mode; `ipvs`: the command knows IPVS mode, too."""
    help_ = "The proxy mode, over what the configuration says. Default: iptables."
    modes = click.Choice([MODE_IPTABLES, MODE_NFTABLES, *([MODE_IPVS] if ipvs else [])])
    return click.option("--mode", type=modes, help=help_, hidden=hidden)


def _take_families(values: dict[str, Any]) -> tuple[IPFamily, ...]:
    asked = ((IPFamily.IPV4, values.pop("ipv4")), (IPFamily.IPV6, values.pop("ipv6")))
    return tuple(family for family, given in asked if given)


def _take_family(values: dict[str, Any]) -> IPFamily | None:
    families = _take_families(values)
    exclude((len(families) > 1, "-4 and -6 exclude each other: one text holds one family's rules"))
    return next(iter(families), None)


def _family_flags(which: str, otherwise: str) -> list[Callable[[Function], Function]]:
    return [
        click.option("-4", "ipv4", is_flag=True, help=f"IPv4 {which}. Default: {otherwise}."),
        click.option("-6", "ipv6", is_flag=True, help=f"IPv6 {which}."),
    ]


one_family = gives("family", _take_family, *_family_flags("rules", "the family of the node's first IP"))
"""Adds -4 and -6 to a command that takes one family, which it gets as `family`: None if neither is given."""
both_families = gives("families", _take_families, *_family_flags("only", "both families"))
"""Adds -4 and -6 to a command that takes both families without them; it gets `families`, none for both."""


def rendering_options(*, mode: bool = True, ipvs: bool = False, hidden: bool = False) -> Callable[[Function], Function]:
    """Adds --config, --mode and --feature, and gives them to the command as `how`, a RenderChoices. `hidden`: --help
    has --config alone. `ipvs`: see `mode_option`."""
    of_mode = [mode_option(ipvs=ipvs, hidden=hidden)] if mode else []
    return gives(
        "how", lambda given: RenderChoices(given.pop("config_path"), given.pop("mode", None), given.pop("features")),
        config_option, *of_mode, feature_option(hidden=hidden),
    )  # fmt: skip


def feature_option(*, hidden: bool = False) -> Callable[[Function], Function]:
    """--feature of a command that renders rules."""
    return click.option(
        "--feature", "features", metavar="NAME=on|off", multiple=True, hidden=hidden,
        callback=lambda _context, _parameter, value: parse_features(value),
        help="What the target host can do: nfacct (default off), random-fully (default on); in nftables mode "
        "object-comments (default on).",
    )  # fmt: skip


def parse_features(values: Sequence[str]) -> Features:
    """Reads `--feature NAME=on|off` values; the last of a name wins.

    Raises:
        click.BadParameter: an unknown name or value.
    """
    chosen: dict[str, bool] = {}
    context = click.get_current_context(silent=True)
    for value in values:
        name, _, state = value.partition("=")
        if name not in FEATURES:
            raise click.BadParameter(f"{name!r} is not a feature; there are {', '.join(FEATURES)}")
        if state not in ("on", "off"):
            raise click.BadParameter(f"{value!r}: a feature is on or off, as in {name}=on")
        chosen[FEATURES[name]] = state == "on"
        if context is not None:
            context.meta.setdefault(_GIVEN_FEATURES, {})[name] = True
    return Features(**chosen)


_ONE_MODE: Mapping[str, Sequence[str]] = {"nft": (MODE_NFTABLES,), "variant": (MODE_IPTABLES,)}
_FEATURE_MODES: Mapping[str, Sequence[str]] = {
    "nfacct": (MODE_IPTABLES,), "random-fully": (MODE_IPTABLES, MODE_IPVS), "object-comments": (MODE_NFTABLES,),
}  # fmt: skip


def tell_unused_options(*modes: str) -> None:
    """Tells, a sentence each, which options of the command line say nothing where all rules are of one mode."""
    source = click.get_current_context().get_parameter_source
    given = {f"--{name}": of for name, of in _ONE_MODE.items() if source(name) is ParameterSource.COMMANDLINE}
    given |= {f"--feature {name}": _FEATURE_MODES[name] for name in given_features()}
    for option, of in given.items() if len(modes) == 1 else ():
        if modes[0] not in of:
            report_note(f"{option} says nothing in {modes[0]} mode: it is for {' and '.join(of)} mode")


def given_features() -> tuple[str, ...]:
    """The names that `--feature` gave a value."""
    return tuple(click.get_current_context().meta.get(_GIVEN_FEATURES, ()))


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:6443`, `[::1]:0` or `:6443`.

    Raises:
        InputError: it is invalid.
    """
    import ipaddress

    found = re.fullmatch(r"(?:\[([0-9a-fA-F:]+)\]|([^\[\]:]*)):([0-9]{1,5})", text)
    if found is None or int(found[3]) > 65535:
        raise InputError(f"--listen {text!r}: must be ADDRESS:PORT, as in 127.0.0.1:6443 or [::1]:0")
    host = found[1] or found[2] or "0.0.0.0"
    if host == "localhost":
        host = "127.0.0.1"
    try:
        ipaddress.ip_address(host)
    except ValueError as error:
        raise InputError(f"--listen {text!r}: {host!r} is no IP address") from error
    return host, int(found[3])
