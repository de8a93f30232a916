"""Packets by name: `--from pod/NS/NAME`, `--to svc/NS/NAME:PORT`, as addresses, ports and origins.

| reference | stands for |
|---|---|
| `pod/NS/NAME[:PORT]` | a Pod's address, and a container port by number or name |
| `node/NAME[:PORT]` | a Node's first InternalIP |
| `svc/NS/NAME[:PORT]` | a Service's ClusterIP, and one of its ports by number or name |
| `nodeport/NS/NAME[:PORT]` | this node's own address, and the node port of that port, which may name it, too |
| `lb/NS/NAME[:PORT]`, `externalip/NS/NAME[:PORT]` | the first load-balancer or external IP |
| `NAME[:PORT]` | to: the Service, else the Pod, else the Node; from: the Pod, else the Node |
| `NAME.NS[.svc.cluster.local][:PORT]` | the Service |

Without `NS/` the namespace is that which `Names` is given, else the only one in which there is such a thing. PORT may
be left out where there is only one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from kproxy.api import Manifests, Node, Service, ServicePort
from kproxy.cluster.hosts import node_addresses
from kproxy.cluster.pods import Pod
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.packet import LOCAL, Endpoint, parse_endpoint
from kproxy.dataplane.query.spec import PacketError
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address, parse_address
from kproxy.render import Target
from kproxy.services.names import family_of

SERVICE_KINDS: Final = ("svc", "nodeport", "lb", "externalip")
_NAMED: Final = {"src": "from", "dst": "to"}
_DNS: Final = re.compile(r"([^.]+)\.([^.]+)(?:\.svc(?:\..+)?)?")
"""A Service by its name in DNS."""
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class End:
    """One end of a packet: its addresses, the port if any, the protocol if the port has one, and whether it is this
    host itself. `note` is what the user should know."""

    addresses: tuple[str, ...]
    port: int | None = None
    protocol: str = ""
    local: bool = False
    note: str = ""


class Names:
    """What a cluster's names stand for, seen from one node."""

    def __init__(
        self,
        cluster: Manifests,
        target: Target,
        pods: Callable[[], Mapping[str, Pod]],
        tell: Callable[[str], None],
        namespace: str = "",
    ) -> None:
        """
        Args:
            target: the node.
            pods: called once, when a Pod is named for the first time.
            tell: gets each remark for the user once.
            namespace: that of names that say none; "" for the only one that has such a name.
        """
        self._services = {service.metadata.key: service for service in cluster.services}
        self._nodes = {node.metadata.name: node for node in cluster.nodes}
        self._target = target
        self._own = () if target.node is None else node_addresses(target.node)
        self._read_pods = pods
        self._tell = tell
        self._told: set[str] = set()
        self._namespace = namespace

    def resolve(self, fields: Mapping[str, object]) -> Mapping[str, object]:
        """A question's fields with `from` and `to` turned into `src`, `dst`, `proto` and `origin`. Raises PacketError:
        a name stands for nothing, or the two ends have no family in common."""
        if fields.get("from") is None and fields.get("to") is None:
            return fields
        given = {field: value for field, value in fields.items() if value is not None}
        ends: dict[str, End] = {}
        for field, name in _NAMED.items():
            value = given.pop(name, None)
            if value is not None and field in given:
                raise PacketError(name, f"it and {field} exclude each other")
            if value is not None and not isinstance(value, str):
                raise PacketError(name, f"a reference expected, such as pod/NS/NAME, not {value!r}")
            if value is not None:
                ends[field] = self._end(name, value, given.get("proto"))
        family = _family(ends, given)
        for field, end in ends.items():
            given[field] = _endpoint(_NAMED[field], end, family, str(fields[_NAMED[field]]))
        to, source = ends.get("dst"), ends.get("src")
        if to is not None and to.protocol:
            given.setdefault("proto", to.protocol.lower())
        if source is not None and source.local and "in" not in given:
            given.setdefault("origin", LOCAL)
        if source is not None and source.note and given.get("origin") != LOCAL and source.note not in self._told:
            self._told.add(source.note)
            self._tell(source.note)
        return given

    @cached_property
    def _pods(self) -> Mapping[str, Pod]:
        return self._read_pods()

    def _end(self, field: str, text: str, proto: object) -> End:
        try:
            family, address, port = parse_endpoint(text)
            return End((format_address(address, family),), port)
        except DataplaneError as error:
            if "/" not in text and (text[:1] == "[" or text.partition(":")[0].replace(".", "").isdigit()):
                raise PacketError(field, f"a reference such as pod/NS/NAME, or {error}") from error
        text = self.full(field, text)
        kind, _, rest = text.partition("/")
        if kind == "pod":
            return self._pod(field, rest)
        if kind == "node":
            return self._node(field, rest)
        if kind in SERVICE_KINDS and field == "to":
            return self._service(kind, rest, proto)
        raise PacketError(field, f"pod/..., node/... or an address expected, not {text!r}")

    def full(self, field: str, text: str) -> str:
        """A reference with its kind and its namespace, where the text leaves them out. Raises PacketError: there is
        nothing of that name, or it is the name of several things."""
        kind, slash, rest = text.partition("/")
        if slash and kind == "node":
            return text
        name, colon, port = (rest if slash and kind in ("pod", *SERVICE_KINDS) else text).partition(":")
        if slash and kind in ("pod", *SERVICE_KINDS):
            found = self._candidates("pod" if kind == "pod" else "svc", name)
            absent = name if "/" in name else f"{self._namespace or 'default'}/{name}"  # its reader says so
            return f"{kind}/{_only(field, f'{kind}/{name}', found or [absent])}{colon}{port}"
        for each in ("svc", "pod", "node") if field == "to" else ("pod", "node"):
            if found := self._candidates(each, name):
                return f"{each}/{_only(field, name, found)}{colon}{port}"
        if (slash and text.count("/") > 1) or kind in SERVICE_KINDS:
            known = ["pod", "node", *(SERVICE_KINDS if field == "to" else ())]
            expected = ", ".join(f"{item}/..." for item in known)
            raise PacketError(field, f"{expected} or an address expected, not {text!r}")
        there = self._services if field == "to" else self._pods
        what = "Service, Pod or node" if field == "to" else "Pod or node"
        where = f" in namespace {self._namespace}" if self._namespace else ""
        raise PacketError(
            field, f"a reference such as pod/NS/NAME, a name or an address expected: {name!r} is no {what}{where}"
            f"{_known(there, name)}",
        )  # fmt: skip

    def _candidates(self, kind: str, name: str) -> list[str]:
        """The keys of a kind that a name may mean."""
        if kind == "node":
            return [name] if name in self._nodes else []
        known: Collection[str] = self._services if kind == "svc" else self._pods
        dns = _DNS.fullmatch(name) if kind == "svc" else None
        if "/" in name or dns is not None:
            key = name if dns is None else f"{dns[2]}/{dns[1]}"
            return [key] if key in known else []
        spaces = (self._namespace,) if self._namespace else {key.partition("/")[0] for key in known}
        return sorted(key for key in (f"{space}/{name}" for space in spaces) if key in known)

    def _pod(self, field: str, rest: str) -> End:
        key, _, port = rest.partition(":")
        pod = self._pods.get(key)
        if pod is None:
            raise PacketError(field, f"pod {key} is not in the cluster{_known(self._pods, key)}")
        if not pod.addresses:
            raise PacketError(field, f"pod {key} has no IP (status.podIP)")
        number, protocol = pod.ports.get(port, (None, ""))
        if port and number is None:
            names = f" (there are {', '.join(pod.ports)})" if pod.ports else ""
            number = _number(field, port, f"pod {key} has no port {port!r}{names}")
        here = not pod.node or pod.node == self._target.node_name
        own = (pod.host_network and here) or not set(pod.addresses).isdisjoint(self._own)
        note = "" if here else (
            f"pod {key} runs on node {pod.node}: what it sends to Services is translated there, and these are the "
            f"rules of node {self._target.node_name}"
        )  # fmt: skip
        return End(pod.addresses, number, protocol, local=own, note=note)

    def _node(self, field: str, rest: str) -> End:
        name, _, port = rest.partition(":")
        node = self._nodes.get(name)
        if node is None:
            raise PacketError(field, f"node {name} is not in the cluster{_known(self._nodes, name)}")
        addresses = _internal(node)
        if not addresses:
            raise PacketError(field, f"node {name} has no IP (status.addresses)")
        number = _number(field, port, f"a port number expected, not {port!r}") if port else None
        return End(addresses, number, local=name == self._target.node_name)

    def _service(self, kind: str, rest: str, proto: object) -> End:
        key, _, wanted = rest.partition(":")
        service = self._services.get(key)
        if service is None:
            raise PacketError("to", f"Service {key} is not in the cluster{_known(self._services, key)}")
        addresses = self._service_addresses(kind, key, service)
        port = _service_port(kind, key, service, wanted, proto)
        number = port.node_port if kind == "nodeport" else port.port
        if not number:
            raise PacketError("to", f"port {port.name or port.port} of Service {key} has no node port")
        return End(addresses, number, port.protocol)

    def _service_addresses(self, kind: str, key: str, service: Service) -> tuple[str, ...]:
        if kind == "nodeport":
            if not self._target.node_name:
                asked = f"nodeport/{key} is asked at a node: give its address and the node port, IP:PORT"
                raise PacketError("to", asked)
            if self._target.node is None:
                raise PacketError("to", f"the address of node {self._target.node_name} is not in the cluster")
            return _internal(self._target.node)
        if kind == "lb":
            found, what = tuple(item.ip for item in service.ingress if item.ip), "load-balancer IP"
        elif kind == "externalip":
            found, what = service.spec.external_ips, "external IP"
        else:
            found, what = tuple(ip for ip in service.spec.cluster_ips if ip != "None"), "ClusterIP"
        if not found:
            raise PacketError("to", f"Service {key} has no {what}")
        return found


def _only(field: str, name: str, found: Collection[str]) -> str:
    """The one thing of a name. Raises PacketError: there are several."""
    if len(found) > 1:
        raise PacketError(field, f"{name} is one of {', '.join(found)}: say which, as in {next(iter(found))}")
    return next(iter(found))


def _internal(node: Node) -> tuple[str, ...]:
    kinds = ("InternalIP", "ExternalIP")
    return tuple(entry.address for kind in kinds for entry in node.addresses if entry.type == kind)


def _number(field: str, text: str, problem: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) <= 0xFFFF:
        return int(text)
    raise PacketError(field, problem)


def _known(names: Mapping[str, object], wanted: str) -> str:
    """The names that are there, those that look alike first."""
    if not names:
        return ", which has none"
    last = wanted.rpartition("/")[2]
    near = sorted(names, key=lambda name: (last not in name, name))
    return f": {', '.join(near[:_SHOWN])}{', ...' if len(near) > _SHOWN else ''}"


def _service_port(kind: str, key: str, service: Service, wanted: str, proto: object) -> ServicePort:
    ports = [port for port in service.spec.ports if not wanted or wanted in (port.name, str(port.port))]
    if not ports and kind == "nodeport":
        ports = [port for port in service.spec.ports if wanted == str(port.node_port)]
    shown = ", ".join(
        f"{port.port}/{port.protocol}{f' ({port.name})' if port.name else ''}" for port in service.spec.ports
    )
    if not ports:
        raise PacketError("to", f"Service {key} has no port {wanted!r}; it has {shown or 'none'}")
    if proto is not None:
        ports = [port for port in ports if port.protocol.lower() == str(proto).lower()]
        if not ports:
            raise PacketError("to", f"Service {key} has no such port over {proto}; it has {shown}")
    if len(ports) > 1 and (not wanted or len({port.port for port in ports}) > 1):
        raise PacketError("to", f"Service {key} has several ports: say which ({shown})")
    return next((port for port in ports if port.protocol == "TCP"), ports[0])


def _family(ends: Mapping[str, End], given: Mapping[str, object]) -> Family | None:
    """The family of the packet: the first of the receiver's that the sender has too."""
    found: list[list[Family]] = []
    for field in ("dst", "src"):
        if field in ends:
            found.append(list(map(family_of, ends[field].addresses)))
        elif isinstance(given.get(field), str):
            with suppress(DataplaneError):  # told of when the field is read
                found.append([parse_endpoint(str(given[field]))[0]])
    firsts = found[0] if found else ()
    return next((family for family in firsts if all(family in other for other in found)), None)


def _endpoint(field: str, end: End, family: Family | None, reference: str) -> Endpoint:
    for address in end.addresses:
        if family_of(address) is family:
            return Endpoint(family, parse_address(address, family), end.port)
    have = ", ".join(end.addresses)
    raise PacketError(field, f"{reference} has no address of the other end's family; it has {have}")
