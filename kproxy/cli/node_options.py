"""What the commands that read or write the kernel share: options, confirmation, progress, and output."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import click
import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cli.live_snapshot import named_lab
from kproxy.cli.loading import gives
from kproxy.cli.objects import ReadObjects, RenderChoices
from kproxy.cli.options import SecondsRange, both_families, given_features, rendering_options, tell_unused_options
from kproxy.cli.output import ProgressLine, output_option, report_note
from kproxy.cli.sources import OBJECTS, Sources, sources
from kproxy.cluster.completeness import remark_claimed_twice
from kproxy.cluster.sources import Kind
from kproxy.errors import InputError
from kproxy.linux.namespace import Namespace, in_initial_namespace
from kproxy.linux.privilege import check_privileges
from kproxy.linux.sync.backend import NodeRequest
from kproxy.linux.sync.report import CleanedTables, Progress
from kproxy.netfilter.hooks import Variant
from kproxy.services import IPFamily

Function = TypeVar("Function", bound=Callable[..., object])

VARIANTS = {"auto": None, "nft": Variant.NFT, "legacy": Variant.LEGACY}


netns_option = click.option(
    "--netns", metavar="NAME",
    help="Act in this network namespace (a name under /run/netns, or a path). Default: the one this process is in.",
)  # fmt: skip

yes_option = click.option(
    "--yes", is_flag=True, help="Do not ask before changing the rules of the machine's initial network namespace."
)

lock_wait_option = click.option(
    "--lock-wait", type=SecondsRange(0, 600), default=5.0, show_default=True, metavar="SECONDS",
    help="How long to wait for the xtables lock (legacy iptables).",
)  # fmt: skip


def variant_options(function: Function) -> Function:
    """Adds --variant, -4, -6 and --lock-wait."""
    which = click.option(
        "--variant", type=click.Choice(list(VARIANTS)), default="auto", show_default=True,
        help="Which iptables to use; auto takes the one that holds Kubernetes' rules already, else nft.",
    )  # fmt: skip
    found: Function = which(both_families(lock_wait_option(function)))
    return found


class NodeArguments(msgspec.Struct, frozen=True):
    """What the command line of `apply` and `drift` says: a node's rules, the kernel they belong in, and the output."""

    sources: Sources
    how: RenderChoices
    variant: str
    families: tuple[IPFamily, ...]
    lock_wait: float
    output_format: str
    yes: bool

    @property
    def netns(self) -> str | None:
        """The network namespace to act in: netns:NAME, or that of a lab's node; None for the one this process is in."""
        if self.sources.netns is not None or Kind.LAB not in self.sources.kinds:
            return self.sources.netns
        lab, record = named_lab(self.sources.of(Kind.LAB)[0].names[0])
        plans = {plan.name: plan.namespace for plan in lab.plans(record)}
        if self.sources.node not in plans:
            raise InputError(
                f"{self.sources.label}: the name of a node expected, as in lab:@{next(iter(plans), 'NODE')}"
            )
        return plans[self.sources.node]

    def read_request(self, *, libiptc: bool = False, compared: bool = False) -> tuple[NodeRequest, ReadObjects]:
        """What the node is to have, and what it was made of. Raises InputError and ClusterReadError.

        Args:
            compared: the rules are compared with what is there, which may tell what is not given.
        """
        read = self.sources.read(self.how, remark_config=not compared)
        config, cluster = read.config, read.cluster
        tell_unused_options(config.mode)
        for remark in remark_claimed_twice(cluster):
            report_note(remark)
        request = NodeRequest(
            read.target(self.sources.node),
            config,
            cluster.services,
            cluster.endpoint_slices,
            self.families,
            VARIANTS[self.variant],
            self.how.features,
            self.lock_wait,
            libiptc,
            cluster.service_cidrs,
            read.config_known,
            not compared or "nfacct" in given_features(),
        )
        return request, read


node_arguments = gives(
    "arguments",
    lambda given: NodeArguments(**{name: given.pop(name) for name in NodeArguments.__struct_fields__}),
    sources((*OBJECTS, Kind.NETNS)),  # no -n: rules of a part of the Services must not replace those of all
    rendering_options(ipvs=True), variant_options, output_option, yes_option,
)  # fmt: skip
"""Adds the options that `apply` and `drift` share, and gives them to the command as `arguments`, `NodeArguments`."""


def open_namespace(netns: str | None) -> Namespace:
    """The namespace to act in.

    Raises:
        PrivilegeError: the process is not root, or lacks CAP_NET_ADMIN.
        NamespaceError: it is not there.
    """
    check_privileges()
    return Namespace.current() if netns is None else Namespace.named(netns)


def confirm(what: str, command: str, netns: str | None, yes: bool) -> None:
    """Asks before the machine's own rules are changed: those of its initial network namespace.

    A process in another one, by `ip netns exec` or in a container without the host's network, is not asked.

    Raises:
        InputError: there is no terminal to ask on, or the answer was no.
    """
    if netns is not None or yes or not in_initial_namespace():
        return
    hint = (
        f"{what} the machine's own rules. To try it in a network namespace instead:\n"
        f"  ip netns add NAME && kproxy {command} ... --netns NAME"
    )
    if not sys.stdin.isatty():
        raise InputError(f"this {hint}\nNothing was changed; give --yes to go ahead")
    click.echo(f"This {hint}", err=True)
    if not click.confirm("Go ahead?", err=True):
        raise InputError("nothing was changed")


@contextlib.contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """Shows the progress of a long operation on a terminal's stderr; nothing otherwise."""
    if not sys.stderr.isatty():
        yield None
        return
    line = ProgressLine()

    def show(what: str, done: int, total: int) -> None:
        if total > 10:
            line.show(f"{what}: {done} of {total}")

    try:
        yield show
    finally:
        line.clear()


def variant_words(variant: str) -> str:
    """What programs the rules, for people: `nft iptables`, or `nftables`."""
    return variant if variant == MODE_NFTABLES else f"{variant} iptables"


def in_words(tables: CleanedTables) -> str:
    """What was removed of one family and variant."""
    if tables.variant == MODE_NFTABLES:
        return f"{tables.chains_deleted} chains with {tables.rules_deleted} rules, {tables.sets_deleted} sets and maps"
    return f"{tables.chains_deleted} chains with {tables.rules_deleted} rules, and {tables.jumps_deleted} jumps to them"
