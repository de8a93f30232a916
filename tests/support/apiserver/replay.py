"""Replays requests recorded from kube-apiserver v1.36.2 against our server, and compares answer by answer.

Names that the server makes up (uids, versions, cluster IPs, node ports, generated names, continue tokens) differ from
run to run, so the first answer that holds a recorded one tells what it is called here, and later requests and answers
are translated. Left out of the comparison: those names, times, ages and column descriptions.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kproxy.apiserver import RunningServer
from kproxy.apiserver.schema import protobuf
from tests.support import paths

REFERENCE = paths.TESTS / "reference" / "kubectl"
ADMIN_TOKEN = "replay-admin"
_DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "hello", "namespace": "demo", "labels": {"app": "hello"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "hello"}},
        "template": {
            "metadata": {"labels": {"app": "hello"}},
            "spec": {"containers": [{"name": "x", "image": "x", "ports": [{"containerPort": 8080}]}]},
        },
    },
}
"""What `kubectl create deployment` sends, whose protobuf did not survive the recording as text."""
_MADE_UP = {"uid", "clusterIP", "name", "continue", "nodePort", "healthCheckNodePort"}
_TIMES = {"creationTimestamp", "time", "deletionTimestamp", "lastTransitionTime", "expirationTimestamp"}


@dataclass
class Exchange:
    """One recorded request and its answer."""

    label: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int
    media: str
    answer: str


def load(name: str) -> list[Exchange]:
    """The exchanges of `requests` or `semantics`."""
    found = []
    for line in (REFERENCE / f"{name}.jsonl").read_text().splitlines():
        record = json.loads(line)
        headers = dict(record.get("request_headers") or {})
        if "cmd" in record:
            headers["User-Agent"] = "kubectl/v1.36.2"
        if "accept" in record:
            headers = {"Accept": record["accept"]}
            if record["content_type"]:
                headers["Content-Type"] = record["content_type"]
        body = record["request"] or ""
        if "\ufffd" in body:
            body, headers["Content-Type"] = json.dumps(_DEPLOYMENT), "application/json"
        found.append(
            Exchange(
                record.get("cmd") or record["note"],
                record["method"],
                record["path"],
                headers,
                body.encode("utf-8") if not body.startswith("k8s\0") else body.encode("utf-8", "surrogateescape"),
                record["status"],
                record["response_headers"].get("Content-Type", ""),
                record["response"] or "",
            )
        )
    return found


class Player:
    """Sends exchanges, and keeps the translation of made-up names."""

    def __init__(self, server: RunningServer, token: str = ADMIN_TOKEN) -> None:
        self._server = server
        self._token = token
        self._names: dict[str, str] = {}
        self._versions: dict[str, str] = {}

    def translate(self, text: str) -> str:
        """A recorded text with our names."""
        if self._names:  # in one pass: what it is translated to may be somebody else's name
            longest_first = sorted(self._names, key=len, reverse=True)
            text = re.sub("|".join(map(re.escape, longest_first)), lambda match: self._names[match[0]], text)

        def version(match: re.Match[str]) -> str:
            return match[1] + self._versions.get(match[2], match[2])

        return re.sub(r'(resourceVersion(?:=|": ?"))(\d+)', version, text)

    def send(self, exchange: Exchange, *, credentials: str | None = None) -> tuple[int, str, str]:
        """Status, media type and text of our answer."""
        context = ssl.create_default_context(cafile=str(self._server.ca))
        connection = http.client.HTTPSConnection("127.0.0.1", self._server.port, context=context, timeout=60)
        headers = dict(exchange.headers)
        credentials = f"Bearer {self._token}" if credentials is None else credentials
        if credentials:
            headers["Authorization"] = credentials
        match = re.search(r"--as (\S+)", exchange.label)
        if match:
            headers["Impersonate-User"] = match[1]
        path = self.translate(exchange.path)
        if "watch" in path:
            path = re.sub(r"timeoutSeconds=\d+", "timeoutSeconds=1", path)
            if "timeoutSeconds" not in path:
                path += "&timeoutSeconds=1"
        body = exchange.body
        if not body.startswith(b"k8s"):
            body = self.translate(body.decode()).encode()
        try:
            connection.request(exchange.method, path, body or None, headers)
            response = connection.getresponse()
            media, data = response.headers.get("Content-Type", ""), response.read()
            if media == protobuf.MEDIA_TYPE:
                data = json.dumps(decode_body(data)).encode()
            return response.status, media, data.decode()
        finally:
            connection.close()

    def wait_until_gone(self, exchange: Exchange) -> None:
        """Waits until a deleted namespace is not there any more, so that what comes next always sees that."""
        path = exchange.path.partition("?")[0]
        probe = Exchange("", "GET", path, {}, b"", 404, "", "")
        for _ in range(1200):
            if self.send(probe)[0] == 404:
                return
            threading.Event().wait(0.05)
        raise AssertionError(f"{path} stays")

    def differences(self, exchange: Exchange, status: int, media: str, text: str) -> list[str]:
        """What is different in our answer."""
        found = []
        if status != exchange.status:
            found.append(f"status {status}, recorded {exchange.status}: {text[:300]}")
            return found
        wanted = exchange.answer
        if media.partition(";")[0] != exchange.media.partition(";")[0]:
            found.append(f"media type {media!r}, recorded {exchange.media!r}")
        if "protobuf" in exchange.media:
            return found  # the recording is binary; what matters is checked where the object is read as JSON
        if not wanted.strip().startswith("{"):
            if wanted.strip() != text.strip():
                found.append(f"text {text[:200]!r}, recorded {wanted[:200]!r}")
            return found
        theirs, ours = _documents(wanted), _documents(text)
        if len(theirs) != len(ours):
            found.append(f"{len(ours)} documents, recorded {len(theirs)}: {text[:600]}")
        for left, right in zip(theirs, ours, strict=False):
            self._learn(left, right)
            found += _compare(json.loads(self.translate(json.dumps(left))), right, "")
        return found

    def _learn(self, theirs: Any, ours: Any) -> None:
        if isinstance(theirs, dict) and isinstance(ours, dict):
            for key, value in theirs.items():
                mine = ours.get(key)
                if key == "resourceVersion" and isinstance(value, str) and isinstance(mine, str):
                    self._versions[value] = mine
                elif key == "clusterIPs" and value and isinstance(mine, list) and mine:
                    if value[0] != "None":
                        self._names[value[0]] = mine[0]
                elif key in _MADE_UP and isinstance(value, str | int) and type(value) is type(mine) and value != mine:
                    if key != "name" or re.fullmatch(r"gen-[a-z0-9]{5}", str(value)):
                        self._names[str(value)] = str(mine)
                else:
                    self._learn(value, mine)
        elif isinstance(theirs, list) and isinstance(ours, list):
            for left, right in zip(theirs, ours, strict=False):
                self._learn(left, right)


def _documents(text: str) -> list[Any]:
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def _compare(theirs: Any, ours: Any, path: str) -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if theirs.get("kind") == "Table":
            theirs, ours = _ageless(theirs), _ageless(ours)
        if "managedFields" in theirs and "managedFields" in ours:
            # Sorted by time, then name: the recording took longer between requests than a replay.
            theirs = {**theirs, "managedFields": sorted(theirs["managedFields"], key=_manager)}
            ours = {**ours, "managedFields": sorted(ours["managedFields"], key=_manager)}
        if theirs.get("kind") in ("APIGroupDiscoveryList", "APIResourceList", "APIGroupList"):
            theirs, ours = _served(theirs, ours), _by_name(ours)
        for key in theirs.keys() | ours.keys():
            where = f"{path}.{key}"
            if key in ("resourceVersion", "uid", "description", "storageVersionHash"):
                if (key in theirs) != (key in ours) and key not in ("description", "storageVersionHash"):
                    yield f"{where}: {ours.get(key)!r}, recorded {theirs.get(key)!r}"
                continue
            if key in _TIMES:
                if (theirs.get(key) is None) != (ours.get(key) is None):
                    yield f"{where}: {ours.get(key)!r}, recorded {theirs.get(key)!r}"
                continue
            if key == "continue" and key in theirs and key in ours:
                continue
            if key not in theirs or key not in ours:
                yield f"{where}: {json.dumps(ours.get(key))[:200]}, recorded {json.dumps(theirs.get(key))[:200]}"
            else:
                yield from _compare(theirs[key], ours[key], where)
    elif isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            yield f"{path}: {json.dumps(ours)[:300]}, recorded {json.dumps(theirs)[:300]}"
        for index, (left, right) in enumerate(zip(theirs, ours, strict=False)):
            yield from _compare(left, right, f"{path}[{index}]")
    elif isinstance(theirs, str) and isinstance(ours, str) and path.endswith("message"):
        plain = re.sub(r"current: \d+", "current: N", theirs), re.sub(r"current: \d+", "current: N", ours)
        if plain[0] != plain[1]:
            yield f"{path}: {ours!r}, recorded {theirs!r}"
    elif theirs != ours or type(theirs) is not type(ours):
        yield f"{path}: {json.dumps(ours)[:300]}, recorded {json.dumps(theirs)[:300]}"


def _manager(entry: dict[str, Any]) -> tuple[str, str, str]:
    return entry["operation"], entry["manager"], entry.get("subresource", "")


def _by_name(value: Any) -> Any:
    """Discovery with its lists as dicts by name: kube-apiserver lists more, and in an order of its own."""
    if isinstance(value, dict):
        return {key: _by_name(item) for key, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {_label(item): _by_name(item) for item in value}
    return value


def _label(item: dict[str, Any]) -> str:
    if isinstance(item.get("metadata"), dict):
        return str(item["metadata"].get("name", ""))
    return next(str(item[key]) for key in ("resource", "subresource", "version", "name") if key in item)


def _served(theirs: Any, ours: Any) -> Any:
    """The recorded discovery without what we do not serve (docs/limits.md)."""

    def trim(left: Any, right: Any) -> Any:
        if isinstance(left, dict) and isinstance(right, dict):
            return {
                key: trim(item, right[key]) for key, item in left.items() if key in right or not isinstance(item, dict)
            }
        return left

    return trim(_by_name(theirs), _by_name(ours))


def _ageless(table: dict[str, Any]) -> dict[str, Any]:
    """A table without ages: a cell that looks like one says so."""
    rows = []
    for row in table.get("rows") or ():
        cells = [
            "AGE" if isinstance(cell, str) and re.fullmatch(r"\d+[smhd](\d+[smh])?|<unknown>", cell) else cell
            for cell in row["cells"]
        ]
        rows.append({**row, "cells": cells})
    return {**table, "rows": rows}


def play(player: Player, exchanges: list[Exchange]) -> dict[int, list[str]]:
    """Plays exchanges in order; the differences by index."""
    found: dict[int, list[str]] = {}
    early: dict[int, list[Any]] = {}
    threads: dict[int, threading.Thread] = {}
    order = list(range(len(exchanges)))
    for index, exchange in enumerate(exchanges):
        if exchange.label == "kubectl delete svc web -n demo" and exchange.method == "DELETE":
            # The two watches before it were still open, and saw it.
            order.remove(index)
            order.insert(order.index(index - 2), index)
    for index in order:
        exchange = exchanges[index]
        following = next(
            (n for n in range(index + 1, min(index + 2, len(exchanges))) if _sees_past(exchanges[n])), None
        )
        if following is not None:
            # The recorded watch was open while the request before it was made.
            early[following] = []
            threads[following] = threading.Thread(target=lambda n=following: early[n].append(player.send(exchanges[n])))
            threads[following].start()
            threading.Event().wait(0.3)
        if index in threads:
            threads[index].join()
            status, media, text = early[index][0]
        else:
            credentials = {"no credentials": "", "wrong token": "Bearer wrong"}.get(exchange.label)
            if "without credentials" in exchange.label:
                credentials = ""
            status, media, text = player.send(exchange, credentials=credentials)
        if exchange.method == "DELETE" and re.fullmatch(r"/api/v1/namespaces/[a-z]+", exchange.path.partition("?")[0]):
            player.wait_until_gone(exchange)
        differences = player.differences(exchange, status, media, text)
        if differences:
            found[index] = differences
    return found


def _sees_past(exchange: Exchange) -> bool:
    return exchange.label == "watch seeing modify, selector leave, delete"


def decode_body(body: bytes) -> Any:
    """A recorded protobuf body as JSON."""
    return protobuf.decode_envelope(body)
