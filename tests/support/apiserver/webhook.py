"""A real webhook: starlette on uvicorn over TLS, which answers as a test's function says."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.waiting import eventually

Json = dict[str, Any]
GROUP = "/apis/admissionregistration.k8s.io/v1"


class Webhook:
    """What was asked, and what is answered: `answer` gets the path and the request of a review, and gives its response;
    bytes are sent as they are, a number is a status."""

    def __init__(self, authority: trustme.CA, port: int) -> None:
        self.port = port
        self.bundle = b64encode(authority.cert_pem.bytes()).decode()
        self.asked: list[tuple[str, Json]] = []
        self.answer: Callable[[str, Json], Any] = lambda _path, _request: {"allowed": True}

    def config(self, path: str) -> Json:
        """A clientConfig for a path of it."""
        return {"url": f"https://127.0.0.1:{self.port}/{path}", "caBundle": self.bundle}


def patch(*operations: Json) -> Json:
    """A response that changes the object."""
    return {"allowed": True, "patchType": "JSONPatch", "patch": b64encode(json.dumps(operations).encode()).decode()}


def rule(plural: str = "configmaps", group: str = "", operation: str = "*", version: str = "*") -> Json:
    return {"apiGroups": [group], "apiVersions": [version], "operations": [operation], "resources": [plural]}


def hook(name: str, config: Json, rules: list[Json], **fields: Any) -> Json:
    """One webhook of a configuration."""
    found = {"name": f"{name}.example.com", "clientConfig": config, "rules": rules}
    return {**found, "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 20, **fields}


@contextmanager
def running_webhook(directory: Path, *names: str) -> Iterator[Webhook]:
    """A webhook on the loopback, whose certificate is for 127.0.0.1 and other names."""
    authority = trustme.CA()
    files = [directory / "webhook.key", directory / "webhook.crt"]
    issued = authority.issue_cert("127.0.0.1", *names)
    issued.private_key_pem.write_to_path(str(files[0]))
    issued.cert_chain_pems[0].write_to_path(str(files[1]))
    found: list[Webhook] = []

    async def review(request: Request) -> Response:
        body = json.loads(await request.body())
        path = request.url.path.lstrip("/")
        found[0].asked.append((path, body["request"]))
        said = await run_in_threadpool(found[0].answer, path, body["request"])
        if isinstance(said, int):
            return Response("out of order", said)
        if isinstance(said, bytes):
            return Response(said)
        response = {"uid": body["request"]["uid"], **said}
        kind = {"kind": body["kind"], "apiVersion": body["apiVersion"]}
        return Response(json.dumps({**kind, "response": response}), media_type="application/json")

    app = Starlette(routes=[Route("/{path:path}", review, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ssl_keyfile=files[0], ssl_certfile=files[1]))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        eventually(lambda: server.started)
        found.append(Webhook(authority, server.servers[0].sockets[0].getsockname()[1]))
        yield found[0]
    finally:
        server.should_exit = True
        thread.join()
