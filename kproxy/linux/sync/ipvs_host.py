"""The backend of IPVS mode: rules of iptables, and beside them ipsets, addresses of `kube-ipvs0`, sysctls and virtual
servers.

What is wanted comes first: sets and addresses, then the rules that ask them, then virtual servers. What is too much is
taken away last. So a packet meets the old or the new state of its Service, or no virtual server yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address

import msgspec

from kproxy.cluster.stale_flows import Addresses
from kproxy.linux.errors import (
    INTERRUPTS,
    ApplyFailedError,
    FeatureMissingError,
    KernelState,
    LinuxError,
    ToolFailedError,
    ToolMissingError,
    failure_message,
)
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.programs import find_program, not_found
from kproxy.linux.sync.backend import Host, NodeRequest
from kproxy.linux.sync.iptables.backend import HostFamily, PreparedFamily
from kproxy.linux.sync.iptables.desired import DesiredRules, jump_lines
from kproxy.linux.sync.report import APPLIED, NOTHING, WOULD_CHANGE, FamilyReport, Progress
from kproxy.linux.sysctl import read_sysctl, write_sysctl
from kproxy.netfilter.ipvs.read import read_servers
from kproxy.netfilter.ipvs.server import RealServer, VirtualServer
from kproxy.render.ipvs.node import RenderedIpvs
from kproxy.render.ipvs.renderer import DEVICE
from kproxy.render.ipvs.rules import CHAINS, JUMP_RULES
from kproxy.render.ipvs.sets import SETS
from kproxy.services import IPFamily, ServiceState

_TIMEOUT = 120.0
_TOOLS = ("ipset", "ipvsadm", "ip")


class Beside(msgspec.Struct, frozen=True):
    """What IPVS mode has beside rules, of one family.

    Attributes:
        servers: by ipvsadm's name, with real servers by address and port.
        sets: the line that makes each set of kube-proxy's, and its members.
        addresses: of `kube-ipvs0`; None if there is no such device.
    """

    servers: Mapping[str, tuple[VirtualServer, Mapping[tuple[str, int], RealServer]]]
    sets: Mapping[str, frozenset[str]]
    addresses: frozenset[str] | None


class Steps(msgspec.Struct, frozen=True):
    """Lines for ipset, ip and ipvsadm that bring what is there to what is wanted: some before the rules are written,
    the rest after them."""

    sets: tuple[str, ...]
    addresses: tuple[str, ...]
    servers: tuple[str, ...]
    old_sets: tuple[str, ...]
    old_addresses: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many lines there are."""
        return sum(len(getattr(self, name)) for name in self.__struct_fields__)


class IpvsFamily(HostFamily, frozen=True):
    """One family that this host can program in IPVS mode."""

    def render(self, request: NodeRequest) -> PreparedIpvs:
        state = ServiceState.of(self.family, request.target.node_name, request.services, request.endpoint_slices)
        rendered = RenderedIpvs.of(state, self.options(request.config, request.target))
        desired = _desired_rules(rendered)
        return PreparedIpvs(
            family=self.family, state=state, options=rendered.options, host=self, executor=self.executor(),
            desired=desired, rendered=rendered,
        )  # fmt: skip


class PreparedIpvs(PreparedFamily, frozen=True, kw_only=True):
    """One family, ready to be written."""

    rendered: RenderedIpvs

    def reconcile(
        self, namespace: Namespace, *, dry_run: bool = False, progress: Progress | None = None
    ) -> tuple[FamilyReport, Callable[[], Addresses]]:
        steps = self._steps(read_beside(namespace, self.rendered))
        settings = self._settings(namespace)
        try:
            if not dry_run:
                for name, value in settings.items():
                    write_sysctl(namespace, name, value)
                _carry_out(namespace, self.family, steps.sets, steps.addresses)
            report, before = super().reconcile(namespace, dry_run=dry_run, progress=progress)
        except (LinuxError, *INTERRUPTS) as error:
            if dry_run or not (settings or steps.sets or steps.addresses):
                raise
            rules = error.state.value if isinstance(error, ApplyFailedError) else KernelState.UNCHANGED.value
            detail = f"the rules are {rules}, sets, addresses and sysctls may have been added to"
            raise ApplyFailedError(failure_message(error), KernelState.PARTLY_APPLIED, detail) from error
        if not dry_run:
            try:
                self._finish(namespace, steps)
            except (LinuxError, *INTERRUPTS) as error:
                detail = "the rules are as wanted"
                raise ApplyFailedError(failure_message(error), KernelState.PARTLY_APPLIED, detail) from error
        if steps.count or settings:
            counts = (f"{len(steps.servers)} of virtual servers", f"{len(steps.sets + steps.old_sets)} of sets")
            more = f"{len(steps.addresses + steps.old_addresses)} of addresses"
            note = f"beside rules, changes: {', '.join((*counts, more))}; {len(settings)} sysctls"
            result = WOULD_CHANGE if dry_run else APPLIED
            changed = result if report.result == NOTHING else report.result
            report = msgspec.structs.replace(report, result=changed, notes=(*report.notes, note))
        return report, before

    def _finish(self, namespace: Namespace, steps: Steps) -> None:
        """Virtual servers, and what is too much; then all of it is read back."""
        if steps.servers:
            _run(namespace, ("ipvsadm", "-R"), steps.servers)
        ipvs = self.rendered.options.ipvs
        timeouts = [str(int(each.seconds)) for each in (ipvs.tcp_timeout, ipvs.tcp_fin_timeout, ipvs.udp_timeout)]
        if any(map(int, timeouts)):
            _run(namespace, ("ipvsadm", "--set", *timeouts))
        _carry_out(namespace, self.family, steps.old_sets, steps.old_addresses)
        left = self._steps(read_beside(namespace, self.rendered))
        if left.count:
            first = next(iter((*left.servers, *left.sets, *left.addresses, *left.old_sets, *left.old_addresses)))
            raise ToolFailedError(f"what was written is not there: {first!r} is still to be done")

    def _settings(self, namespace: Namespace) -> dict[str, str]:
        """The sysctls that have other values than kube-proxy gives them."""
        found = {}
        for each in self.rendered.objects():
            if each.kind == "sysctl":
                name, _, value = each.text.partition(" = ")
                if read_sysctl(namespace, name) != value:
                    found[name] = value
        return found

    def _steps(self, there: Beside) -> Steps:
        rendered, family = self.rendered, self.family
        wanted = wanted_beside(rendered)
        held = there.addresses or frozenset()
        own = wanted.addresses or frozenset()
        on = f"dev {DEVICE}{' nodad' if family.is_ipv6 else ''}"
        addresses = [] if there.addresses is not None else [f"link add {DEVICE} type dummy"]
        addresses += [f"address add {each}/{family.bits} {on}" for each in sorted(own - held)]
        create = {found.name_in(family): found.create(family) for found in rendered.made.members}
        sets = [create[name] for name in wanted.sets if name not in there.sets]
        old_sets = []
        for name, members in wanted.sets.items():
            now = there.sets.get(name, frozenset())
            sets += [f"add {name} {member}" for member in sorted(members - now)]
            old_sets += [f"del {name} {member}" for member in sorted(now - members)]
        gone = sorted(held - own)
        old_addresses = [f"address delete {each}/{family.bits} dev {DEVICE}" for each in gone]
        servers = tuple(_server_steps(wanted, there, rendered.spares))
        return Steps(tuple(sets), tuple(addresses), servers, tuple(old_sets), tuple(old_addresses))


def _server_steps(wanted: Beside, there: Beside, spares: Callable[[VirtualServer], bool]) -> Iterator[str]:
    for name, (server, real) in wanted.servers.items():
        now, held = there.servers.get(name, (None, {}))
        if now is None:
            yield server.line
        elif now != server:
            yield server.line.replace("-A ", "-E ", 1)
        for key, each in real.items():
            old = held.get(key)
            if old is None:
                yield each.line(server)
            elif (old.weight, old.forwarding) != (each.weight, each.forwarding):
                yield each.line(server).replace("-a ", "-e ", 1)
        for key in held.keys() - real.keys():
            yield held[key].line(server).replace("-a ", "-d ", 1).partition(" -m ")[0]
    for name, (server, _) in there.servers.items():
        if name not in wanted.servers and not spares(server):
            yield f"-D {name}"


def wanted_beside(rendered: RenderedIpvs) -> Beside:
    """What was rendered."""
    family = rendered.options.family
    servers = {
        each.name: (each, {(one.address, one.port): one for one in real}) for each, real in rendered.servers.items()
    }
    sets = {found.name_in(family): frozenset(members) for found, members in rendered.made.members.items()}
    return Beside(servers, sets, frozenset(rendered.made.addresses))


def read_beside(namespace: Namespace, rendered: RenderedIpvs) -> Beside:
    """What the kernel has of it. Raises LinuxError."""
    family = rendered.options.family
    listed = read_servers(_run(namespace, ("ipvsadm", "-Sn")), "ipvsadm -Sn").servers
    servers = {
        each.name: (each, {(one.address, one.port): one for one in real})
        for each, real in listed.items()
        if (":" in each.address) is family.is_ipv6
    }
    names = {found.name_in(family) for found in rendered.made.members}
    sets: dict[str, set[str]] = {}
    for line in _run(namespace, ("ipset", "save")).splitlines():
        word, name, what = (*line.split(maxsplit=3), "", "")[:3]
        if name in names:
            held = sets.setdefault(name, set())
            if word == "add":
                held.add(what)
    shown = run(namespace, ["ip", "-o", f"-{family.version}", "address", "show", "dev", DEVICE], timeout=_TIMEOUT)
    words = (line.split() for line in shown.stdout.splitlines())
    found = frozenset(each[3].partition("/")[0] for each in words if len(each) > 3)
    local = frozenset(each for each in found if not ip_address(each).is_link_local)
    return Beside(servers, {name: frozenset(held) for name, held in sets.items()}, None if shown.code else local)


def _desired_rules(rendered: RenderedIpvs) -> DesiredRules:
    family = rendered.options.family
    chains = {(table, chain): "" for table, names in CHAINS.items() for chain in names}
    for line in rendered.lines:
        chains[line.table, line.chain] += f"-A {line.chain} {line.arguments}\n"
    jumps = jump_lines(family, lambda line: line, JUMP_RULES)
    return DesiredRules(family, chains, {}, jumps, rendered.rule_origins)


def _carry_out(namespace: Namespace, family: IPFamily, sets: tuple[str, ...], addresses: tuple[str, ...]) -> None:
    if sets:
        _run(namespace, ("ipset", "restore"), sets)
    if addresses:
        _run(namespace, ("ip", f"-{family.version}", "-batch", "-"), addresses)


def _run(namespace: Namespace, command: tuple[str, ...], lines: tuple[str, ...] = ()) -> str:
    done = run(namespace, command, text="".join(f"{line}\n" for line in lines), timeout=_TIMEOUT)
    if done.code:
        raise ToolFailedError(f"{' '.join(command)}: {done.reason}")
    return done.stdout


def cleanup_ipvs(namespace: Namespace, *, dry_run: bool = False) -> str:
    """Removes what kube-proxy's IPVS mode leaves beside rules, which have to be gone: virtual servers at the addresses
    of `kube-ipvs0` and at its node ports, its sets, and the device. Virtual servers of others stay.

    Returns:
        What was removed, or in a dry run would be, in words; "" if there is no such device.

    Raises:
        LinuxError: it cannot be read or removed.
    """
    if run(namespace, ["ip", "link", "show", DEVICE], timeout=_TIMEOUT).code:
        return ""
    shown = (line.split() for line in _run(namespace, ("ip", "-o", "address", "show", "dev", DEVICE)).splitlines())
    own = {each[3].partition("/")[0] for each in shown}
    names = {found.name_in(family) for found in SETS for family in IPFamily}
    lines = [line.split() for line in _run(namespace, ("ipset", "save")).splitlines()]
    sets = [words[1] for words in lines if words[0] == "create" and words[1] in names]
    ports = {words[2].rpartition(":")[2] for words in lines if words[0] == "add" and "NODE-PORT" in words[1]}
    listed = read_servers(_run(namespace, ("ipvsadm", "-Sn")), "ipvsadm -Sn").servers
    servers = [each for each in listed if each.address in own or str(each.port) in ports]
    if not dry_run:
        if servers:
            _run(namespace, ("ipvsadm", "-R"), tuple(f"-D {each.name}" for each in servers))
        _run(namespace, ("ipset", "restore"), tuple(f"destroy {name}" for name in sets))
        _run(namespace, ("ip", "link", "delete", DEVICE))
    verb = "would be removed" if dry_run else "removed"
    return f"of IPVS mode {verb}: {len(servers)} virtual servers, {len(sets)} sets, {DEVICE}"


def check_ipvs() -> None:
    """Whether this machine has what IPVS mode needs.

    Raises:
        ToolMissingError: a program is not installed.
        FeatureMissingError: the kernel has no IPVS, or no dummy devices.
    """
    for name in _TOOLS:
        if find_program(name) is None:
            raise ToolMissingError(f"IPVS mode needs {name}: {not_found(name)}")
    with Namespace.scratch() as scratch:
        tried = run(scratch, ["ipvsadm", "-Sn"], timeout=_TIMEOUT)
        if tried.code:
            raise FeatureMissingError(f"this kernel has no IPVS (module ip_vs): {tried.reason}")
        made = run(scratch, ["ip", "link", "add", DEVICE, "type", "dummy"], timeout=_TIMEOUT)
    if made.code:
        raise FeatureMissingError(
            f"this kernel has no dummy devices (module dummy), and addresses need one: {made.reason}"
        )


def ipvs_host(host: Host) -> Host:
    """A host that iptables mode can program, in IPVS mode.

    Raises:
        ToolMissingError: a program that it needs is not installed.
        FeatureMissingError: the kernel has no IPVS, or no dummy devices.
    """
    check_ipvs()
    families = tuple(
        IpvsFamily(**{name: getattr(each, name) for name in each.__struct_fields__})
        for each in host.families
        if isinstance(each, HostFamily)
    )
    return msgspec.structs.replace(host, families=families, reason=f"mode ipvs, {host.reason}")
