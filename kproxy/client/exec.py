"""A command in a container, over the API server's WebSocket: `kubectl exec`, with bounds.

The protocol is v5.channel.k8s.io or v4.channel.k8s.io (k8s.io/apimachinery/pkg/util/remotecommand): each message begins
with its channel, 0 for standard input, 1 for standard output, 2 for standard error, 3 for a metav1.Status that says how
it ended; 255 ends a channel, in v5 alone.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from kproxy.client.errors import ApiError, TransportError, describe_failure
from kproxy.client.http import CONNECT_TIMEOUT
from kproxy.client.resources import PODS
from kproxy.client.rest import RestClient
from kproxy.errors import KproxyError
from kproxy.informer.codec import decode_status

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _ENDED, _CLOSE = 0, 1, 2, 3, 255
_PIECE: Final = 32768
_KEPT_ERRORS: Final = 4096


class ExecError(KproxyError):
    """A command was not executed to its end: it took too long, printed too much, or could not be started."""


class ExecResult(msgspec.Struct, frozen=True):
    """What a command printed, and its exit code; of standard error the last 4096 octets."""

    output: bytes
    errors: bytes
    code: int


def execute(
    client: RestClient,
    namespace: str,
    pod: str,
    command: tuple[str, ...],
    *,
    container: str = "",
    stdin: bytes | None = None,
    timeout: float,
    max_octets: int,
) -> ExecResult:
    """Runs a command in a Pod and waits for its end.

    Args:
        container: "" for the only one.
        stdin: what the command gets as its input, which it should not read to an end: v4 has none. None for no input.
        timeout: seconds for all of it.
        max_octets: of standard output.

    Raises:
        ApiError: the server refuses.
        TransportError: there is no connection, or it is lost.
        ExecError: see there.
    """
    deadline = time.monotonic() + timeout
    query = [*(("command", word) for word in command), ("stdout", "true"), ("stderr", "true")]
    if container:
        query.append(("container", container))
    if stdin is not None:
        query.append(("stdin", "true"))
    target = f"{PODS.path(namespace, pod, 'exec')}?{urlencode(query)}"
    with _open(client, target, timeout) as connection:
        connection.settimeout(timeout)  # connecting has more, if that is less
        if stdin is not None:
            _write(client, connection, stdin)
        return _read(client, connection, deadline, timeout, max_octets)


def _open(client: RestClient, target: str, timeout: float) -> contextlib.closing[Any]:
    import websocket

    try:
        return contextlib.closing(client.http.websocket(target, PROTOCOLS, max(timeout, CONNECT_TIMEOUT)))
    except websocket.WebSocketBadStatusException as error:
        body = error.resp_body if isinstance(error.resp_body, bytes) else b""
        raise ApiError(decode_status(body, error.status_code, None), f"GET {target}") from error
    except (websocket.WebSocketException, OSError, ValueError) as error:
        raise TransportError(describe_failure(error), client.http.address) from error


def _write(client: RestClient, connection: Any, data: bytes) -> None:
    import websocket

    try:
        for at in range(0, len(data), _PIECE):
            connection.send_binary(bytes((_STDIN,)) + data[at : at + _PIECE])
        if connection.getsubprotocol() == PROTOCOLS[0]:
            connection.send_binary(bytes((_CLOSE, _STDIN)))
    except (websocket.WebSocketException, OSError) as error:
        raise TransportError("the connection was lost before the command began", client.http.address) from error


def _read(client: RestClient, connection: Any, deadline: float, timeout: float, max_octets: int) -> ExecResult:
    import websocket

    output, errors, size = [], b"", 0
    late = threading.Timer(max(0.0, deadline - time.monotonic()), connection.shutdown)
    late.daemon = True
    late.start()
    try:
        while True:
            data = connection.recv()
            if isinstance(data, str):
                data = data.encode()
            if not data and not connection.connected:
                raise websocket.WebSocketConnectionClosedException
            channel, payload = data[:1], data[1:]
            if channel == bytes((_STDOUT,)):
                size += len(payload)
                if size > max_octets:
                    raise ExecError(f"it printed more than {max_octets >> 20} MiB")
                output.append(payload)
            elif channel == bytes((_STDERR,)):
                errors = (errors + payload)[-_KEPT_ERRORS:]
            elif channel == bytes((_ENDED,)):
                return ExecResult(b"".join(output), errors, _exit_code(payload))
    except (websocket.WebSocketException, OSError, ValueError, AttributeError) as error:
        if time.monotonic() >= deadline:
            raise ExecError(f"not done after {timeout:.0f} s") from error
        raise TransportError("the connection was lost before the command's end", client.http.address) from error
    finally:
        late.cancel()


def _exit_code(payload: bytes) -> int:
    """Raises ExecError for a command that was not started."""
    try:
        status = msgspec.json.decode(payload, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ExecError("the server does not say how the command ended") from error
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or ()
    for cause in causes if status.get("reason") == "NonZeroExitCode" else ():
        if cause.get("reason") == "ExitCode" and str(cause.get("message")).isdecimal():
            return int(cause["message"])
    raise ExecError(str(status.get("message") or "the command failed"))
