"""Replaces what texts hold of names and addresses; notes them first (`names`, `addresses`)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Final

from kproxy.collect.redact.addresses import AddressMap
from kproxy.collect.redact.names import NAMESPACE, PORT, SERVICE, TEXT, Names
from kproxy.errors import KproxyError
from kproxy.render.iptables.chains import SERVICE_PORT_CHAIN_PREFIXES, endpoint_chain_name, service_port_hash
from kproxy.render.ipvs.sets import SETS
from kproxy.render.nftables.names import hashed_base
from kproxy.services.names import ServicePortName

PROTOCOLS: Final = ("TCP", "UDP", "SCTP")

_V4: Final = r"\d{1,3}(?:\.\d{1,3}){3}"
_V6: Final = r"[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:(?:\.\d{1,3}){3})?"
_TOKEN: Final = re.compile(
    rf"""
      (?P<nft>\b(?:service|local|external|firewall|endpoint|affinity)-)[A-Z2-7]{{8}}
        -(?P<ns>[a-z0-9-]+)/(?P<svc>[a-z0-9-]+)/(?P<proto>tcp|udp|sctp)/(?P<port>[a-z0-9-]*)
        (?:__(?P<ip>[0-9a-f.]+)/(?P<number>\d+))?
    | (?P<kube>\bKUBE-(?:[A-Z]+-)+)(?P<hash>[A-Z2-7]{{16}})(?![\w-])
    | (?P<link>\b(?:cali|lxc|eni|gke|azv))(?P<digits>[0-9a-f]{{8,}})\b
    | \benx(?P<enx>[0-9a-f]{{12}})\b
    | (?<![\w:.])(?P<mac>[0-9a-f]{{2}}(?::[0-9a-f]{{2}}){{5}})(?![\w:])
    | (?<![\w:.])(?P<hardware>[0-9a-f]{{2}}(?::[0-9a-f]{{2}}){{7,}})(?![\w:])
    | (?<![\w.])(?P<first>{_V4})-(?P<last>{_V4})(?![\w.])
    | (?<![\w.])(?P<v4>{_V4})(?:/(?P<mask>{_V4}|\d{{1,2}}))?(?![\w.])
    | (?<![\w:.])(?P<first6>{_V6})-(?P<last6>{_V6})(?![\w:.])
    | (?<![\w:.])(?P<v6>{_V6})(?:/(?P<mask6>{_V6}|\d{{1,3}}))?(?![\w:])
    """,
    re.VERBOSE,
)

_PART: Final = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"
_SERVICE_PORT: Final = re.compile(rf"({_PART})/({_PART})(?::([a-z0-9-]*))?")
_SENTENCES: Final = """
    cluster IP  external IP  loadbalancer IP  has no endpoints  has no local endpoints  health check node port
    masquerade LOCAL traffic for external destinations  route LOCAL traffic for external destinations
    pod traffic for external destinations  traffic not accepted by  other traffic to will be dropped by  ->
    kubernetes service portals  kubernetes service nodeports; NOTE: this must be the last rule in this chain
    kubernetes externally-visible service portals  kubernetes health check service ports
    kubernetes load balancer firewall  kubernetes postrouting rules  kubernetes forwarding rules
    kubernetes forwarding conntrack rule  kubernetes service traffic requiring SNAT  block incoming localnet connections
    kubernetes firewall for dropping marked packets  KUBE-PROXY-FIREWALL
    rules for kube-proxy  helper for @no-endpoint-services / @no-endpoint-nodeports  Active ClusterIPs
    IPs that accept NodePort traffic  destinations that are subject to LoadBalancerSourceRanges  hairpin connections
    vmap to drop or reject packets to service nodeports with no endpoints  packets to services with no endpoints
    ClusterIP, ExternalIP and LoadBalancer IP traffic  NodePort traffic  masquerade  masquerade pod local traffic
    masquerade all clusterIP traffic  masquerade clusterIP traffic from outside cluster  masquerade hairpin traffic
    short-circuit pod traffic  short-circuit local traffic  drop traffic from outside the loadbalancer source ranges
    Reject traffic to invalid ports of ClusterIPs  Drop traffic to unallocated ClusterIPs
    flanneld forward  flanneld masq  CNI portfwd requiring masquerade  CNI portfwd masquerade mark
    kubernetes health check rules  kube-proxy firewall rules  kubernetes ipvs access filter
    ip-masq-agent: ensure nat POSTROUTING directs all non-LOCAL destination traffic to our custom IP-MASQ chain
"""
_VOCABULARY: Final = frozenset(_SENTENCES.split()).union(*(each.comment.split() for each in SETS))


class UnredactableError(KproxyError):
    """A part of a snapshot that must be left out, since its names or addresses cannot be replaced."""


class Words:
    """What is replaced, in both readings."""

    def __init__(self, key: bytes) -> None:
        """Args: key: secret, 16 to 64 octets."""
        self.names = Names(key)
        self.addresses = AddressMap(key)
        self._service_ports: set[tuple[str, str, str]] = set()
        self._endpoints: dict[str, set[str]] = {}
        self._leading: dict[str, set[str]] = {}
        self._hashes: dict[str, str] = {}
        self._cache: dict[str, str] = {}

    # --- the first reading ---

    def service_port(self, namespace: str, name: str, port: str) -> str:
        """A ServicePort, as kube-proxy writes it: `namespace/name:port`."""
        if not self.names.is_settled:
            self._service_ports.add((namespace, name, port))
        return str(self._new(ServicePortName(namespace, name, port, "TCP")))

    def note_endpoint(self, chain: str, address: str) -> None:
        """The address that a KUBE-SEP chain translates to."""
        self._endpoints.setdefault(chain, set()).add(address)

    def note_jump(self, chain: str, target: str) -> None:
        """A KUBE-SVC or KUBE-SVL chain that leads to a KUBE-SEP chain."""
        self._leading.setdefault(target, set()).add(chain)

    def settle(self) -> None:
        """Ends the first reading: from here on, everything is replaced."""
        self.names.settle()
        by_hash: dict[str, ServicePortName] = {}
        for namespace, name, port in sorted(self._service_ports):
            for protocol in PROTOCOLS:
                old = ServicePortName(namespace, name, port, protocol)
                by_hash[service_port_hash(old)] = old
        self._hashes = {digest: service_port_hash(self._new(old)) for digest, old in by_hash.items()}
        for chain, addresses in self._endpoints.items():
            leading = {each.rpartition("-")[2] for each in self._leading.get(chain, ())}
            for old in filter(None, map(by_hash.get, sorted(leading))):
                for address in addresses:
                    if endpoint_chain_name(old, address) == chain:
                        new = endpoint_chain_name(self._new(old), self.text(address))
                        self._hashes[chain.rpartition("-")[2]] = new.rpartition("-")[2]

    # --- texts ---

    def text(self, text: str) -> str:
        """A text with its addresses, its chains of kube-proxy and its telling interface names replaced.

        Raises:
            UnredactableError: it holds a mask with gaps.
        """
        return _TOKEN.sub(self._token, text)

    def comment(self, text: str) -> str:
        """A comment: one in kube-proxy's words with its names replaced, any other as a whole."""
        words = text.split(" ")
        found = []
        for word in words:
            match = _SERVICE_PORT.fullmatch(word)
            if word in _VOCABULARY or not word:
                found.append(word)
            elif match is not None:
                found.append(self.service_port(match[1], match[2], match[3] or ""))
            elif _is_token(word):
                found.append(self.text(word))
            else:
                return self.names.name(TEXT, text)
        return " ".join(found)

    def free(self, text: str) -> str:
        """A text of which nothing is understood."""
        return self.names.name(TEXT, text)

    def _new(self, old: ServicePortName) -> ServicePortName:
        name = self.names.name
        return ServicePortName(
            name(NAMESPACE, old.namespace), name(SERVICE, old.name), name(PORT, old.port), old.protocol
        )

    # --- one token ---

    def _token(self, match: re.Match[str]) -> str:
        text = match[0]
        found = self._cache.get(text)
        if found is None:
            try:
                found = _BY_GROUP[_group_of(match)](self, match)
            except ValueError:  # it only looks like one: a version, a time
                found = text
            if self.names.is_settled:
                self._cache[text] = found
        return found

    def _nft_chain(self, match: re.Match[str]) -> str:
        namespace, service, port = match["ns"], match["svc"], match["port"]
        self.service_port(namespace, service, port)
        new = self._new(ServicePortName(namespace, service, port, match["proto"].upper()))
        base = f"{new.namespace}/{new.name}/{match['proto']}/{new.port}"
        if match["ip"]:
            is_ipv4 = re.fullmatch(_V4, match["ip"]) is not None
            ip = match["ip"] if is_ipv4 else match["ip"].replace(".", ":")
            base += f"__{self.address(ip).replace(':', '.')}/{match['number']}"
        return match["nft"] + hashed_base(base)

    def _kube_chain(self, match: re.Match[str]) -> str:
        if not self.names.is_settled:
            return match[0]
        known = self._hashes.get(match["hash"]) if match["kube"] in SERVICE_PORT_CHAIN_PREFIXES else None
        return match["kube"] + (known or self.names.scrambled(match["hash"], 16))

    def _link(self, match: re.Match[str]) -> str:
        digits = match["digits"]
        return match["link"] + "".join(f"{ord(each):02x}" for each in self.names.scrambled(digits, 16))[: len(digits)]

    def _enx(self, match: re.Match[str]) -> str:
        pairs = re.findall("..", match["enx"])
        return "enx" + self.addresses.mac(":".join(pairs)).replace(":", "")

    def _mac(self, match: re.Match[str]) -> str:
        return self.addresses.mac(match[0]) if self.names.is_settled else match[0]

    def _hardware(self, match: re.Match[str]) -> str:
        try:
            return self.address(match[0])  # an IPv6 address whose groups have two digits each
        except ValueError:
            scrambled = self.names.scrambled(match[0], 64).encode().hex()
            return ":".join(scrambled[3 * at : 3 * at + 2] for at in range(match[0].count(":") + 1))

    def _range(self, match: re.Match[str]) -> str:
        first, last = match[0].split("-")
        if not self.names.is_settled:
            self.keep_range(first, last)
        return f"{self.address(first)}-{self.address(last)}"

    def _address(self, match: re.Match[str]) -> str:
        address, _, mask = match[0].partition("/")
        found = ipaddress.ip_address(address)
        if not mask:
            return self.address(address)
        length = int(mask) if mask.isdecimal() else _length(mask)
        if length > found.max_prefixlen:
            raise ValueError(match[0])
        if not self.names.is_settled:
            self.addresses.keep_network(ipaddress.ip_network(f"{address}/{length}", strict=False))
            return match[0]
        return f"{self.addresses.network(f'{address}/{length}').partition('/')[0]}/{mask}"

    def address(self, text: str) -> str:
        """One address. Raises ValueError if it is none."""
        found = ipaddress.ip_address(text)
        return str(self.addresses.address(found)) if self.names.is_settled else text

    def keep_range(self, first: str, last: str) -> None:
        """In the first reading: what lies between two addresses must lie between them. Raises ValueError."""
        one, other = ipaddress.ip_address(first), ipaddress.ip_address(last)
        if one.version == other.version:
            self.addresses.keep_range(one, other)


def _length(mask: str) -> int:
    """The prefix length of a mask. Raises UnredactableError if it has gaps, ValueError if it is none."""
    found = ipaddress.ip_address(mask)
    bits, length = int(found), int(found).bit_count()
    if bits != ((1 << length) - 1) << (found.max_prefixlen - length):
        raise UnredactableError(f"mask {mask} has gaps, which no replacement of addresses keeps")
    return length


def _is_token(word: str) -> bool:
    """Whether all of a word is replaced, or `ip:port`."""
    plain = re.sub(r":\d+\Z", "", word) if word.count(":") == 1 or word.startswith("[") else word
    return _TOKEN.fullmatch(plain.strip("[]")) is not None


def _group_of(match: re.Match[str]) -> str:
    return next(name for name in _BY_GROUP if match[name] is not None)


_BY_GROUP: Final[dict[str, Callable[[Words, re.Match[str]], str]]] = {
    "nft": Words._nft_chain,
    "kube": Words._kube_chain,
    "link": Words._link,
    "enx": Words._enx,
    "mac": Words._mac,
    "hardware": Words._hardware,
    "first": Words._range,
    "v4": Words._address,
    "first6": Words._range,
    "v6": Words._address,
}
