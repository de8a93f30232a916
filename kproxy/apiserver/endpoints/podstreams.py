"""pods/exec over WebSocket, and pods/log: what is asked is checked here, and done by the kubelet of the Pod's node.

Source: kubernetes/kubernetes pkg/registry/core/pod/strategy.go (streamLocation, LogLocation) and
k8s.io/apimachinery/pkg/util/remotecommand. Of the protocols, v5 and v4 are spoken, by which kubectl 1.30 and later and
the client libraries execute; SPDY, of older kubectls, is refused in words.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from kproxy.api.fielderror import forbidden as forbidden_field
from kproxy.api.fielderror import invalid as invalid_field
from kproxy.apiserver.auth.rbac import Attributes, Authorizer
from kproxy.apiserver.endpoints.request import Request
from kproxy.apiserver.errors import Json, StatusError, bad_request, internal, invalid
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.kubelet import (
    CLOSE,
    ENDED,
    RESIZE,
    STDIN,
    Connect,
    ExecRequest,
    KubeletRequest,
    LogRequest,
    frame,
    read_frame,
)
from kproxy.apiserver.registry.registry import Registry

V5: Final = "v5.channel.k8s.io"
V4: Final = "v4.channel.k8s.io"
PROTOCOLS: Final = (V5, V4)

_PATIENCE: Final = 30.0
"""Seconds for a kubelet to begin."""
_SPDY: Final = (
    "this server executes commands over WebSocket only (v5.channel.k8s.io, v4.channel.k8s.io), not over SPDY: "
    "use kubectl 1.30 or later"
)

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class KubeletStream:
    """A request that a kubelet has begun to answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """What comes on standard output, to its end."""
        try:
            while (found := await read_frame(self._reader)) is not None and found[0] != ENDED:
                if found[1]:
                    yield found[1]
        finally:
            self.stop()

    def stop(self) -> None:
        """Ends it; the kubelet notices."""
        self._writer.close()

    async def join(self, receive: Receive, send: Send) -> None:
        """Carries a WebSocket's messages to the kubelet and back, until one of them ends."""
        to_kubelet = asyncio.ensure_future(self._to_kubelet(receive))
        try:
            ended = False
            while not ended and (found := await read_frame(self._reader)) is not None:
                channel, payload = found
                ended = channel == ENDED
                await send({"type": "websocket.send", "bytes": bytes((channel,)) + payload})
            await send({"type": "websocket.close", "code": 1000 if ended else 1011})
        finally:
            to_kubelet.cancel()
            self.stop()

    async def _to_kubelet(self, receive: Receive) -> None:
        with contextlib.suppress(OSError):
            while True:
                message = await receive()
                if message["type"] == "websocket.disconnect":
                    self.stop()
                    return
                data = message.get("bytes") or (message.get("text") or "").encode()
                if data and data[0] in (STDIN, RESIZE):
                    self._writer.write(frame(data[0], data[1:]))
                elif data and data[0] == CLOSE and data[1:] == bytes((STDIN,)):
                    self._writer.write(frame(CLOSE))
                await self._writer.drain()


class PodStreams:
    """The two subresources."""

    def __init__(self, registry: Registry, pods: Resource, authorizer: Authorizer, connect: Connect | None) -> None:
        """Args: connect: how to reach kubelets; None if there are none."""
        self._registry = registry
        self._pods = pods
        self._authorizer = authorizer
        self._connect = connect

    async def exec(self, request: Request, query: bytes, offered: Sequence[str]) -> tuple[KubeletStream, str]:
        """Begins a command; the second is the WebSocket protocol to speak.

        Args:
            query: of the URL, since a command has several words.
            offered: the protocols that the client knows.

        Raises:
            StatusError: it is refused: 400, 403, 404, or 500 if the kubelet cannot be reached or has no such container.
        """
        target = request.target
        # A WebSocket begins with GET; it takes `create` all the same, since Kubernetes 1.35.
        wanted = Attributes("create", "", "pods", "exec", target.namespace, target.name)
        self._authorizer.require(request.user, wanted)
        pairs = parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True)
        command = tuple(value for name, value in pairs if name == "command")
        streams = {name: bool(request.flag(name)) for name in ("stdin", "stdout", "stderr", "tty")}
        given = {"container": request.query.get("container"), "command": list(command), **streams}
        sent = {name: value for name, value in given.items() if value}
        await self._registry.admit(
            self._pods, target.namespace, target.name, "exec", sent, None, request.user, request.warnings, connects=True
        )
        pod, container = self._container(request)
        protocol = next((each for each in PROTOCOLS if each in offered), None)
        if protocol is None:
            known = " and ".join(PROTOCOLS)
            raise bad_request(f"none of the protocols {', '.join(offered) or '(none)'} is supported: {known} are")
        if not any(streams[name] for name in ("stdin", "stdout", "stderr")):
            raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
        if not command:
            raise bad_request("you must specify a command")
        asked = ExecRequest(pod["metadata"]["uid"], container, command, **streams)
        return await self._begin(self._node(pod), asked), protocol

    def refuse(self, request: Request) -> StatusError:
        """Why an exec that is no WebSocket cannot be: what is wrong with it anyway comes first."""
        pod, _ = self._container(request)
        self._node(pod)
        return bad_request(_SPDY if request.method == "POST" else "Upgrade request required")

    async def log(self, request: Request) -> KubeletStream | None:
        """Begins to read a log; None if there is nothing yet, since the Pod has no node.

        Raises:
            StatusError: it is refused.
        """
        pod, container = self._container(request)
        asked = self._log_request(request, pod["metadata"]["uid"], container)
        node = (pod.get("spec") or {}).get("nodeName")
        return await self._begin(node, asked) if node else None

    def _log_request(self, request: Request, uid: str, container: str) -> LogRequest:
        numbers = {name: request.number(name) for name in ("tailLines", "sinceSeconds", "limitBytes")}
        least = {"tailLines": 0, "sinceSeconds": 1, "limitBytes": 1}
        errors = [
            invalid_field(name, number, f"must be greater than or equal to {least[name]}")
            for name, number in numbers.items()
            if number is not None and number < least[name]
        ]
        since_time, seconds = request.query.get("sinceTime", ""), numbers["sinceSeconds"]
        if since_time and seconds is not None:
            errors.append(forbidden_field("", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
        if errors:
            raise invalid("", "PodLogOptions", "", errors)
        since = None if seconds is None else self._registry.now().timestamp() - seconds
        if since_time:
            try:
                since = datetime.fromisoformat(since_time).timestamp()
            except ValueError as error:
                raise bad_request(f"sinceTime: {error}") from error
        flags = {name: bool(request.flag(name)) for name in ("follow", "previous", "timestamps")}
        return LogRequest(uid, container, **flags, tail=numbers["tailLines"], since=since, limit=numbers["limitBytes"])

    def _container(self, request: Request) -> tuple[Json, str]:
        """The Pod, and the container that is meant."""
        target = request.target
        pod = self._registry.head(self._pods, target.namespace, target.name).value
        spec = pod.get("spec") or {}
        names = [str(each.get("name")) for each in spec.get("containers") or ()]
        first = [str(each.get("name")) for each in spec.get("initContainers") or ()]
        wanted = request.query.get("container", "")
        if wanted:
            if wanted not in (*names, *first):
                raise bad_request(f"container {wanted} is not valid for pod {target.name}")
            return pod, wanted
        if len(names) != 1:
            others = f" or one of the init containers: [{' '.join(first)}]" if first else ""
            choice = f", choose one of: [{' '.join(names)}]{others}"
            raise bad_request(f"a container name must be specified for pod {target.name}{choice if names else ''}")
        return pod, names[0]

    @staticmethod
    def _node(pod: Json) -> str:
        node = (pod.get("spec") or {}).get("nodeName")
        if not node:
            raise bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
        return str(node)

    async def _begin(self, node: str, asked: KubeletRequest) -> KubeletStream:
        if self._connect is None:
            raise internal(f"error dialing backend: no kubelet of node {node}: this server has none")
        try:
            async with asyncio.timeout(_PATIENCE):
                reader, writer = await self._connect(node)
                writer.write(msgspec.json.encode(asked) + b"\n")
                await writer.drain()
                found = await read_frame(reader)
        except (OSError, TimeoutError) as error:
            why = getattr(error, "strerror", None) or str(error) or "it does not answer"
            raise internal(f"error dialing backend: kubelet of node {node}: {why}") from error
        if found is None:
            raise internal(f"error dialing backend: kubelet of node {node}: it has gone")
        if found[0] == ENDED:
            writer.close()
            status = msgspec.json.decode(found[1])
            raise StatusError(status.get("code", 500), status.get("reason", ""), status.get("message", ""))
        return KubeletStream(reader, writer)
