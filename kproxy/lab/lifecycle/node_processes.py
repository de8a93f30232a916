"""What runs on a node: the kubelet, the overlay and the proxy as their own commands; and the files that they read."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Mapping
from typing import Final

import yaml

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES
from kproxy.cni.install import InstallError, install_launcher, write_conflist
from kproxy.lab.health import is_healthy
from kproxy.lab.lifecycle import processes
from kproxy.lab.resources import Json
from kproxy.lab.spec import LabSpec, NodePlan
from kproxy.lab.state import LabDirectory
from kproxy.linux.namespace import Namespace
from kproxy.overlay.conflist import network_list

KUBELET: Final = "kubelet"
PROXY: Final = "proxy"
OVERLAY: Final = "overlay"
NODE_KINDS: Final = (OVERLAY, PROXY, KUBELET)
BRIDGE: Final = "cni0"
_HEALTH_PORT: Final = 10256
_FEW_NODES: Final = 5
_NO_LIMITS: Final = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
_MAX_SOCKET_PATH: Final = 107
"""Bytes of a Unix socket's path (unix(7))."""


def role_of(kind: str, node: str) -> str:
    """The role under which a node's process is known."""
    return f"{kind}/{node}"


def start_node(lab: LabDirectory, spec: LabSpec, plan: NodePlan) -> None:
    """Starts all processes of a node; those that run already are left alone."""
    write_configuration(lab, spec, plan)
    running = {item.role for item in processes.find(lab)}
    for kind in NODE_KINDS:
        role = role_of(kind, plan.name)
        if role not in running:
            lab.log(role.replace("/", "-")).unlink(missing_ok=True)
            if kind == OVERLAY:
                lab.overlay_ready(plan.name).unlink(missing_ok=True)  # it does so itself, but not at once
            processes.start(lab, role, command_of(kind, lab, spec, plan), plan.namespace, variables_of(kind, lab, plan))


def prepare_plugin(lab: LabDirectory) -> None:
    """Compiles the CNI launcher, so that ADD need not start Python; without a compiler the plugin is executed."""
    with contextlib.suppress(InstallError):
        install_launcher(lab.path / "bin")


def cni_socket(lab: LabDirectory, node: str) -> str:
    """Where a node's overlay process serves the CNI plugin; "" if the lab's directory has too long a name for that."""
    path = str(lab.node(node) / "cni.sock")
    return path if len(os.fsencode(path)) <= _MAX_SOCKET_PATH else ""


def variables_of(kind: str, lab: LabDirectory, plan: NodePlan) -> Mapping[str, str]:
    """What a node's process has in its environment beside what all have."""
    if kind != KUBELET:
        return {}
    path = os.pathsep.join(filter(None, [str(lab.path / "bin"), os.environ.get("CNI_PATH", "")]))
    return {"CNI_PATH": path, "KPROXY_CNI_SOCKET": cni_socket(lab, plan.name)}


def node_problems(lab: LabDirectory, plan: NodePlan) -> list[str]:
    """What of a node's own work is not done yet: the overlay is not laid, the proxy has not written its rules."""
    found = []
    if not lab.overlay_ready(plan.name).exists():
        found.append(f"the overlay of {plan.name} is not ready")
    with Namespace.named(plan.namespace) as inside:
        if not inside.call(is_healthy, "127.0.0.1", _HEALTH_PORT):
            found.append(f"the proxy of {plan.name} has not written its rules")
    return found


def write_configuration(lab: LabDirectory, spec: LabSpec, plan: NodePlan) -> None:
    """Writes the files that a node's processes read."""
    directory = lab.node(plan.name)
    cidrs = map(ipaddress.ip_network, plan.pod_cidrs)
    document = network_list(cidrs, spec.pod_mtu, BRIDGE, str(directory / "cni"), spec.variant)
    write_conflist(directory / "net.d", document)
    (directory / "proxy.yaml").write_text(yaml.safe_dump(proxy_configuration(lab, spec), sort_keys=False))


def proxy_configuration(lab: LabDirectory, spec: LabSpec) -> Json:
    """The KubeProxyConfiguration of every node: what was asked for, and what a lab needs."""
    given = spec.proxy
    # Whoever looks at a lab waits for every change; a cluster's second would be most of what he sees. Many nodes share
    # one machine's processors.
    periods = {"minSyncPeriod": "10ms" if spec.nodes <= _FEW_NODES else "200ms", "syncPeriod": "30s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "detectLocalMode": "ClusterCIDR",
        **given,
        "mode": spec.mode,
        spec.mode: {**periods, **(given.get(spec.mode) or {})},
        "clientConnection": {"kubeconfig": str(lab.node_kubeconfig)},
        "clusterCIDR": ",".join(spec.pod_cidrs),
        "healthzBindAddress": f"0.0.0.0:{_HEALTH_PORT}",
        # The machine's limits of connection tracking are not a lab's to change.
        "conntrack": {**(given.get("conntrack") or {}), **_NO_LIMITS},
    }


def command_of(kind: str, lab: LabDirectory, spec: LabSpec, plan: NodePlan) -> list[str]:
    """The command line of a node's process; it is started inside the node's namespace."""
    if kind == KUBELET:
        return [*processes.PYTHON, "-m", "kproxy.lab.lifecycle.process", KUBELET, str(lab.path), plan.name]
    if kind == PROXY:
        configuration = str(lab.node(plan.name) / "proxy.yaml")
        # It acts on the namespace it is in, which to it looks like the machine's own.
        return [
            *processes.KPROXY, "run", "--config", configuration, "--node", plan.name, "--yes",
            *(["--variant", spec.variant] if spec.mode == MODE_IPTABLES else []),
            *(option for family, option in ((4, "-4"), (6, "-6")) if spec.families == (family,)),
        ]  # fmt: skip
    socket = cni_socket(lab, plan.name)
    return [
        *processes.KPROXY, "overlay", "run", "--node", plan.name, "--kubeconfig", str(lab.node_kubeconfig),
        "--backend", spec.backend, "--ip-masq", "--variant", spec.variant, "--cluster-cidr", ",".join(spec.pod_cidrs),
        "--ready-file", str(lab.overlay_ready(plan.name)), *(["--cni-socket", socket] if socket else []),
    ]  # fmt: skip
