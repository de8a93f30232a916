"""Whether this machine can run a lab: said before anything is made."""

from __future__ import annotations

import os

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.lab.errors import LabError
from kproxy.lab.spec import LabSpec
from kproxy.linux.errors import FeatureMissingError, LinuxError
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.binary import find_nft
from kproxy.linux.nftables.executor import NftExecutor
from kproxy.linux.nftables.preflight import run_preflight
from kproxy.linux.process import run
from kproxy.linux.programs import find_program, not_found
from kproxy.services import IPFamily

_TIMEOUT = 20.0


def check_machine(spec: LabSpec) -> None:
    """Root, iproute2, iptables of the variant, nft in its mode, namespaces, veth, bridge, bridged packets through
    iptables, and VXLAN.

    Tried in a scratch namespace, so nothing stays.

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
            if spec.mode == MODE_NFTABLES:
                _try_tables(scratch, spec)
    except LinuxError as error:
        raise LabError(f"a lab needs network namespaces: {error}") from error


def _try_tables(scratch: Namespace, spec: LabSpec) -> None:
    nft = find_nft()
    for family in IPFamily:
        if family.version in spec.families:
            try:
                run_preflight(NftExecutor(scratch, nft, family)).check()
            except FeatureMissingError as error:
                raise LabError(str(error)) from error


def _try_links(scratch: Namespace, spec: LabSpec) -> None:
    kinds = {
        "veth": "link add try1 type veth peer name try2",
        "bridge": "link add try3 type bridge",
    }
    if spec.backend == "vxlan":
        kinds["vxlan"] = "link add try4 type vxlan id 1 dstport 8472 nolearning local 192.0.2.1"
    for kind, line in kinds.items():
        done = run(scratch, ["ip", *line.split()], timeout=_TIMEOUT)
        if done.code:
            hint = " or choose --backend host-gw, which does without" if kind == "vxlan" else ""
            raise LabError(f"this kernel makes no {kind} links ({done.stderr.strip()}): load the module ({kind}){hint}")
