"""Nodes that are read by the `kproxy run` of each: its metrics port answers /debug/collect with the node's files.

It is asked through the API server (`/api/v1/nodes/NODE:10249/proxy/`), or at a URL.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from kproxy.client import CancelledError, ClientConfig, HttpClient, RestClient
from kproxy.client.cluster import one_line_errors
from kproxy.client.http import Call
from kproxy.client.resources import NODES
from kproxy.cluster.snapshot.files import read_archive
from kproxy.cluster.snapshot.layout import HOST_FILES, host_file
from kproxy.cluster.snapshot.layout import NODES as NODES_DIRECTORY
from kproxy.cluster.snapshot.script import COLLECT, MAX_OCTETS, SECONDS, TOKEN_HEADER
from kproxy.collect.nodes import NodeReader
from kproxy.errors import InputError, KproxyError
from kproxy.informer.codec import decode_status

PORT: Final = 10249
"""kube-proxy's metrics port."""
MAX_PACKED: Final = 64 << 20
"""Octets of an answer, which is compressed."""

_NODE, _ADDRESS = "{node}", "{address}"


class AgentError(KproxyError):
    """A node's `kproxy run` did not answer with the node's files."""


@dataclass(frozen=True, slots=True)
class AgentReader:
    """Asks the agent of one node at `target`, a path. `seconds` and `max_octets` (unpacked) are for all of it."""

    http: HttpClient
    target: str
    node: str
    token: str = ""
    seconds: float = SECONDS
    max_octets: int = MAX_OCTETS
    via: str = "agent"

    def read(self) -> Mapping[str, bytes]:
        """See `NodeReader`."""
        where = f"{self.http.address}{self.target}"
        files = read_archive(io.BytesIO(self._packed(where)), where, self.max_octets)
        found: dict[str, bytes] = {}
        for name in HOST_FILES:
            data = files.read(host_file(self.node, name))
            if data is not None:
                found[name] = data
        if not found:
            others = {path.split("/")[1] for path in files.paths() if path.startswith(f"{NODES_DIRECTORY}/")}
            names = ", ".join(sorted(others)[:3])
            whose = f"it is node {names} that answers" if others else "it has no files of a node"
            raise AgentError(f"{where}: {whose}")
        return found

    def _packed(self, where: str) -> bytes:
        call = Call()
        late = threading.Timer(self.seconds, call.cancel)
        late.daemon = True
        late.start()
        headers = {TOKEN_HEADER: self.token} if self.token else {}
        try:
            with self.http.stream(
                "GET", self.target, accept="application/gzip", headers=headers, timeout=self.seconds, call=call
            ) as answer:
                pieces, size = [], 0
                while piece := answer.read():
                    pieces.append(piece)
                    size += len(piece)
                    if size > MAX_PACKED:
                        raise AgentError(f"{where}: more than {MAX_PACKED >> 20} MiB")
        except CancelledError as error:
            raise AgentError(f"{where}: not done after {self.seconds:.0f} s") from error
        finally:
            late.cancel()
        body = b"".join(pieces)
        if answer.status != 200:
            said = decode_status(body, answer.status).message.removeprefix("error: ")
            if answer.status == 404:
                said = f"404, which kproxy run does not answer: {said}"
            raise AgentError(f"{where}: {said}")
        return body


def find_agents(
    client: RestClient | None, nodes: Iterable[str], url: str | None, token: str
) -> tuple[dict[str, NodeReader], dict[str, str]]:
    """A reader for each node, and why others have none.

    Args:
        client: of the API server; None: only `nodes` at `url` are asked.
        nodes: only these; none for all that the API server has.
        url: of the agents' metrics ports, in which {node} and {address} stand for the node's name and its InternalIP;
            None: through the API server.
        token: what `kproxy run --collect-token-file` wants; "" for none.

    Raises:
        InputError: there is no such node, or the URL is of no use.
        ClusterReadError: nodes cannot be listed.
    """
    addresses = {} if client is None else _addresses(client)
    wanted = tuple(dict.fromkeys(nodes)) or tuple(addresses)
    for name in wanted if client is not None else ():
        if name not in addresses:
            raise InputError(f"the cluster has no node {name!r}: there are {', '.join([*addresses][:10]) or 'none'}")
    if url is not None and len(wanted) > 1 and _NODE not in url and _ADDRESS not in url:
        raise InputError(f"--agent-url {url}: the same for {len(wanted)} nodes: {_NODE} or {_ADDRESS} tells them apart")
    readers: dict[str, NodeReader] = {}
    missing: dict[str, str] = {}
    for name in wanted:
        if url is None:
            assert client is not None
            readers[name] = AgentReader(client.http, f"/api/v1/nodes/{name}:{PORT}/proxy{COLLECT}", name, token)
            continue
        address = addresses.get(name, "")
        if _ADDRESS in url and not address:
            missing[name] = f"its address is not known, which {url} needs"
            continue
        readers[name] = AgentReader(_http(url.replace(_NODE, name).replace(_ADDRESS, address)), COLLECT, name, token)
    return readers, missing


def _addresses(client: RestClient) -> dict[str, str]:
    """The nodes' InternalIPs as URLs have them, "" for one that has none."""
    found: dict[str, str] = {}
    with one_line_errors(client):
        for item in sorted(client.list(NODES).items, key=lambda each: each.metadata.name):
            own = next((each.address for each in item.addresses if each.type == "InternalIP"), "")
            found[item.metadata.name] = f"[{own}]" if ":" in own else own
    return found


def _http(url: str) -> HttpClient:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) and not parts.query
    except ValueError:
        fits = False
    if not fits:
        raise InputError(f"--agent-url {url}: http://HOST:PORT or https://HOST:PORT expected")
    return HttpClient(ClientConfig(server=url.rstrip("/").removesuffix(COLLECT)))
