"""What the kubelet reads of a pod: its containers, ports, and whether it runs commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kproxy.lab.kubelet.servers import Port
from kproxy.lab.resources import DNS, SERVES, Json, Object, controller_of

DEFAULT_PORTS: Final = (Port(80), Port(8080), Port(80, "UDP"), Port(8080, "UDP"))


def containers_of(pod: Object) -> Sequence[Object]:
    found: Sequence[Object] = pod["spec"].get("containers") or ()
    return found


def init_containers_of(pod: Object) -> Sequence[Object]:
    """Those that run to their end before the others."""
    return [each for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") != "Always"]


def sidecars_of(pod: Object) -> Sequence[Object]:
    """Init containers that go on beside the others."""
    return [each for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") == "Always"]


def all_containers_of(pod: Object) -> Sequence[Object]:
    return [*(pod["spec"].get("initContainers") or ()), *containers_of(pod)]


def hostname_of(pod: Object) -> str:
    """What a pod takes for its hostname."""
    if pod["spec"].get("hostNetwork"):
        return str(pod["spec"].get("nodeName") or "")
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63]


def serves_dns(pod: Object) -> bool:
    """Whether a pod is a server of cluster DNS."""
    return bool((pod["metadata"].get("annotations") or {}).get(SERVES) == DNS)


def is_task(pod: Object) -> bool:
    """Whether a pod's containers run commands to their end."""
    if pod["spec"].get("restartPolicy", "Always") == "Always":
        return False
    return (controller_of(pod) or {}).get("kind") == "Job" or any(map(words_of, containers_of(pod)))


def words_of(container: Object) -> list[str]:
    # Images that are made for commands have no entry point, so args alone are mostly a command.
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def volumes_of(pod: Object) -> list[str]:
    """The volumes of a pod, which a lab has not, in words: `data (emptyDir)`."""
    volumes = pod["spec"].get("volumes") or ()
    return [f"{each['name']} ({next((kind for kind in each if kind != 'name'), 'emptyDir')})" for each in volumes]


def event_parts(pod: Object) -> list[tuple[str, str]]:
    """The containers' names, and what events call them; those that run before not among them."""
    names = [str(item["name"]) for item in containers_of(pod)]
    return [(name, f"spec.containers{{{name}}}") for name in names]


def pod_words(pod: Object) -> str:
    meta = pod["metadata"]
    return f"{meta['name']}_{meta['namespace']}({meta['uid']})"


def pod_ports(pod: Object) -> tuple[Port, ...]:
    """The ports that a pod's echo server serves; one that runs commands has none.

    A port that a livenessProbe or a startupProbe asks is served, declared or not: what does not answer there would be
    killed.
    """
    if is_task(pod):
        return ()
    found = [
        Port(int(port["containerPort"]), port.get("protocol", "TCP"))
        for container in (*containers_of(pod), *sidecars_of(pod))
        for port in container.get("ports") or ()
    ]
    probes = [each.get(name) or {} for each in containers_of(pod) for name in ("livenessProbe", "startupProbe")]
    asked = [Port(number) for number in map(_asked_port, probes) if number]
    return tuple(dict.fromkeys((*(found or DEFAULT_PORTS), *asked)))


def _asked_port(probe: Object) -> int:
    """The number of the port that a probe asks; 0 for a name, which is declared, or none."""
    port = (probe.get("httpGet") or probe.get("tcpSocket") or {}).get("port")
    return port if isinstance(port, int) else 0


def container_of_port(pod: Object, number: int) -> str:
    """The container that declares a port; the first one if none does."""
    containers = [*containers_of(pod), *sidecars_of(pod)]
    ports = ((each, port) for each in containers for port in each.get("ports") or ())
    found = (each for each, port in ports if int(port["containerPort"]) == number)
    return str(next(found, containers[0])["name"])


def port_mappings(pod: Object) -> list[Json]:
    return [
        {
            "hostPort": port["hostPort"],
            "containerPort": port["containerPort"],
            "protocol": port.get("protocol", "TCP").lower(),
            **({"hostIP": port["hostIP"]} if port.get("hostIP") else {}),
        }
        for container in containers_of(pod)
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def pre_stop(pod: Object) -> float:
    """Seconds that the containers go on after the pod was deleted."""
    sleeps = [
        float((((container.get("lifecycle") or {}).get("preStop") or {}).get("sleep") or {}).get("seconds") or 0)
        for container in containers_of(pod)
    ]
    return max(sleeps, default=0.0)
