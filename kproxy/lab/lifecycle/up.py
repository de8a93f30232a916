"""`lab up`: from nothing to a cluster that answers, or back to nothing with the reason.

The order: the directory (so that the lab can be found again whatever happens), namespaces and links, the API server,
then everything else at once; the processes find each other through the API server. The manifests come last.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.client import RestClient
from kproxy.cluster.inputs import Tell
from kproxy.errors import InputError
from kproxy.lab.config.decode import HostCommand
from kproxy.lab.errors import LabError
from kproxy.lab.lifecycle import processes
from kproxy.lab.lifecycle.down import tear_down
from kproxy.lab.lifecycle.manifests import Manifest
from kproxy.lab.lifecycle.node_processes import NODE_KINDS, node_problems, prepare_plugin, role_of, start_node
from kproxy.lab.lifecycle.objects import (
    NotReadyError,
    Progress,
    apply_manifests,
    complaints,
    dns_objects,
    lab_client,
    read_progress,
)
from kproxy.lab.network import add_node, build_network
from kproxy.lab.resources import DNS_NAMESPACE, KINDS, NODES, is_ready
from kproxy.lab.spec import MAX_NODES, LabSpec, NodePlan
from kproxy.lab.state import LabDirectory, LabRecord
from kproxy.linux.errors import LinuxError
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.programs import find_program, not_found

APISERVER: Final = "apiserver"
_COMMANDS: Final = "commands"
_COMPLAINTS: Final = 3
"""Pods of which it is told why they are not ready."""
_TRY: Final = 20.0
"""Seconds that `ip` may take."""
_LOOK: Final = 1.0
"""Seconds between looks at what runs; each reads all of /proc."""
_PROBES: Final = "pods are echo servers on their containerPorts, and answer every GET there (documentation: lab)"
Say = Callable[[str], None]


class Brought(NamedTuple):
    """A lab that is up, and what it should have and has not: why workloads are not ready, "" if they are."""

    record: LabRecord
    late: str = ""


class Waiting(NamedTuple):
    """How long `bring_up` waits, and what its caller hears meanwhile.

    Attributes:
        timeout: seconds for each thing that is waited for.
        say, show: what is being done, and how far it is; they may raise.
        tell: what is odd, a sentence each.
        check: raises if the user does not want it any more; called wherever something is waited for.
    """

    timeout: float
    say: Say
    show: Callable[[Progress], None]
    tell: Tell
    check: Callable[[], None]


def bring_up(
    lab: LabDirectory,
    spec: LabSpec,
    manifests: Sequence[Manifest],
    waiting: Waiting,
    owner: tuple[int, int] | None = None,
    commands: Sequence[HostCommand] = (),
) -> Brought:
    """Builds a lab and waits until its nodes and workloads are ready.

    What an earlier `lab up` of the same name left unfinished is removed first. If this one fails, so is all it made;
    but a lab whose workloads are not ready in time stays, so that it can be seen why.

    Args:
        owner: user and group of the kubeconfig, if not this process's.
        commands: what is executed in the hosts' networks at the end.

    Raises:
        LabError: the lab is up already, the machine cannot do it, or something did not come up.
    """
    check_machine(spec)
    processes.require_no_namesake(lab)
    with lab.locked():
        record = lab.record()
        if record is not None and record.phase == "up":
            raise LabError(
                f"lab {spec.name!r} is up already; `kproxy lab down --name {spec.name}` ends it, "
                "and --name makes another one beside it"
            )
        if record is not None:
            waiting.say(f"an earlier `lab up` of {spec.name!r} did not finish: removing what is left of it")
        tear_down(lab, keep_directory=True)
        try:
            return _build(lab, spec, manifests, commands, waiting, owner)
        except BaseException as error:
            tails = "" if isinstance(error, InputError) or not isinstance(error, LabError) else _log_tails(lab)
            tear_down(lab)
            if tails:
                raise LabError(f"{error}\n{tails}") from error
            raise


def _build(
    lab: LabDirectory,
    spec: LabSpec,
    manifests: Sequence[Manifest],
    commands: Sequence[HostCommand],
    waiting: Waiting,
    owner: tuple[int, int] | None,
) -> Brought:
    plans = list(spec.node_plans())
    record = LabRecord(spec, "starting", nodes=tuple(plan.number for plan in plans), owner=owner)
    lab.write(record)
    server = start_apiserver(lab)
    prepare_plugin(lab)
    waiting.say("network")
    build_network(spec)
    (lab.path / "network").touch()  # what the API server's second listener waits for
    waiting.say("API server")
    client = wait_for_apiserver(lab, server, waiting.timeout, waiting.check)
    record = msgspec.structs.replace(record, port=_port(client))
    lab.write(record)
    if spec.dns:
        for item in dns_objects(spec.dns_addresses):
            client.create(KINDS[item["kind"]], item, DNS_NAMESPACE)
    waiting.say("nodes")
    for plan in plans:
        waiting.check()
        start_node(lab, spec, plan)
    # Nodes first: pods that come while only one node is ready would all be put there.
    _wait(lab, client, plans, waiting)
    late = ""
    if manifests:
        waiting.say("workloads")
        apply_manifests(client, manifests, waiting.tell)
        try:
            _wait(lab, client, plans, waiting)
        except NotReadyError as error:
            said = complaints(client)[:_COMPLAINTS]
            late = "\n".join((str(error), *said, *([_PROBES] if any(": Unhealthy: " in each for each in said) else [])))
    for command in commands:
        waiting.check()
        _execute(lab, spec, command, waiting)
    waiting.check()
    record = msgspec.structs.replace(record, phase="up")
    lab.write(record)
    return Brought(record, late)


def _execute(lab: LabDirectory, spec: LabSpec, command: HostCommand, waiting: Waiting) -> None:
    """Executes a command of the lab's file; what it prints is in logs/commands.log. Raises LabError."""
    with lab.log(_COMMANDS).open("ab") as log, Namespace.named(spec.namespace(command.host)) as inside:
        # In a process group of its own: Ctrl-C on the terminal is for this process, which takes everything away.
        child = inside.call(
            subprocess.Popen, ["sh", "-ec", command.run], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=processes.environment(lab, f"command/{command.host}"), process_group=0,
        )  # fmt: skip
    deadline = time.monotonic() + waiting.timeout
    while child.poll() is None:
        waiting.check()
        if time.monotonic() > deadline:
            raise LabError(f"{command.host}: {command.run}: has not ended after {waiting.timeout:.0f} s")
        time.sleep(0.02)
    if child.returncode:
        raise LabError(f"{command.host}: {command.run}: exit code {child.returncode}\n{lab.log_tail(_COMMANDS, 5)}")


def _wait(lab: LabDirectory, client: RestClient, plans: Sequence[NodePlan], waiting: Waiting) -> None:
    """Waits until nodes and workloads are ready, and the nodes have done their own work.

    Raises:
        NotReadyError: they are not in time, or a process that they need has ended.
    """
    names = [plan.name for plan in plans]
    expected = [APISERVER, *(role_of(kind, name) for name in names for kind in NODE_KINDS)]
    looked = time.monotonic()
    deadline = looked + waiting.timeout
    while True:
        found = read_progress(client, names)
        waiting.show(found)
        missing = found.missing or [problem for plan in plans for problem in node_problems(lab, plan)]
        if not missing:
            return
        if time.monotonic() - looked > _LOOK:
            looked = time.monotonic()
            running = {item.role for item in processes.find(lab)}
            dead = [role for role in expected if role not in running]
            if dead:
                raise NotReadyError(f"has ended, and was not to: {', '.join(dead)}")
        if time.monotonic() > deadline:
            raise NotReadyError(f"not ready after {waiting.timeout:.0f} s: {'; '.join(missing[:5])}")
        time.sleep(0.1)


def start_apiserver(lab: LabDirectory) -> subprocess.Popen[bytes]:
    """Starts the API server's process; it waits for the fabric's namespace."""
    lab.kubeconfig.unlink(missing_ok=True)
    command = [*processes.PYTHON, "-m", "kproxy.lab.lifecycle.process", APISERVER, str(lab.path)]
    return processes.start(lab, APISERVER, command)


def wait_for_apiserver(
    lab: LabDirectory,
    server: subprocess.Popen[bytes] | None,
    patience: float = 20.0,
    check: Callable[[], None] = lambda: None,
) -> RestClient:
    """A client, once the server has written its kubeconfig.

    Raises:
        LabError: it has not after `patience` seconds, or has ended.
    """
    deadline = time.monotonic() + patience
    while not lab.kubeconfig.exists():
        check()
        if server is not None and server.poll() is not None:
            raise LabError(f"the API server did not start:\n{lab.log_tail(APISERVER)}")
        if time.monotonic() > deadline:
            raise LabError(f"the API server does not answer:\n{lab.log_tail(APISERVER)}")
        time.sleep(0.01)
    return lab_client(lab)


def require_apiserver(lab: LabDirectory, otherwise: str) -> None:
    """Raises LabError if its process does not run. Called before anything is changed."""
    if not any(item.kind == APISERVER for item in processes.find(lab)):
        raise LabError(f"the API server does not run, so {otherwise}: `kproxy lab heal apiserver`")


def _port(client: RestClient) -> int:
    return int(client.config.server.rpartition(":")[2])


def join_node(lab: LabDirectory, *, timeout: float) -> str:
    """Adds a node to a lab that is up; returns its name. Raises LabError."""
    with lab.locked():
        record = lab.running()
        require_apiserver(lab, "no node can join")
        number = max(record.nodes, default=0) + 1
        if number > MAX_NODES:
            raise LabError(f"a lab has at most {MAX_NODES} nodes")
        plan = record.spec.node(number)
        lab.write(msgspec.structs.replace(record, nodes=(*record.nodes, number)))
        add_node(record.spec, plan)
        start_node(lab, record.spec, plan)
        client = lab_client(lab)
        deadline = time.monotonic() + timeout
        while not _is_ready(client, plan.name) or node_problems(lab, plan):
            if time.monotonic() > deadline:
                raise LabError(
                    f"{plan.name} is not ready after {timeout:.0f} s\n{lab.log_tail(f'kubelet-{plan.name}')}"
                )
            time.sleep(0.1)
    return plan.name


def _is_ready(client: RestClient, name: str) -> bool:
    return any(item.metadata.name == name and is_ready(item.raw) for item in client.list(NODES).items)


def _log_tails(lab: LabDirectory) -> str:
    """The end of the logs of processes that have something to say."""
    directory = lab.path / "logs"
    shown: list[str] = []
    for log in sorted(directory.glob("*.log"))[:40] if directory.is_dir() else ():
        tails = lab.log_tail(log.stem, 3)
        if "rror" in tails and log.stem != _COMMANDS and len(shown) < 4:
            shown.append(f"{log.stem}: {tails}")
    return "\n".join(shown)


# --- whether this machine can run a lab: said before anything is made ---


def check_machine(spec: LabSpec) -> None:
    """Root, iproute2, iptables of the variant, nft in its mode, namespaces, veth, bridge and VXLAN.

    Links are tried in a scratch namespace, so nothing stays.

    Raises:
        LabError: something is missing; it says what, and what to do.
    """
    if os.geteuid() != 0:
        raise LabError("a lab needs root: it makes network namespaces, links and iptables rules")
    programs = ["ip", f"iptables-{spec.variant}-restore", "conntrack", *(["nft"] if spec.mode == MODE_NFTABLES else [])]
    packages = {"ip": "iproute2", "conntrack": "conntrack", "nft": "nftables"}
    for name in programs:
        if find_program(name) is None:
            raise LabError(f"{not_found(name)}: install {packages.get(name, 'iptables')}")
    try:
        with Namespace.scratch() as scratch:
            _try_links(scratch, spec)
    except LinuxError as error:
        raise LabError(f"a lab needs network namespaces: {error}") from error


def _try_links(scratch: Namespace, spec: LabSpec) -> None:
    kinds = {
        "veth": "link add try1 type veth peer name try2",
        "bridge": "link add try3 type bridge",
    }
    if spec.backend == "vxlan":
        kinds["vxlan"] = "link add try4 type vxlan id 1 dstport 8472 nolearning local 192.0.2.1"
    for kind, line in kinds.items():
        done = run(scratch, ["ip", *line.split()], timeout=_TRY)
        if done.code:
            hint = " or choose --backend host-gw, which does without" if kind == "vxlan" else ""
            raise LabError(f"this kernel makes no {kind} links ({done.stderr.strip()}): load the module ({kind}){hint}")
