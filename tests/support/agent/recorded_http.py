"""What kube-proxy was recorded to answer, and a plain client to ask the same of kproxy."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tests.support import paths
from tests.support.waiting import PATIENCE

RECORDED = paths.TESTS / "reference" / "kube-proxy-http"
CHANGING = ("Date", "Content-Length", "Transfer-Encoding", "Connection")
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def lasting_headers(self) -> dict[str, str]:
        """Those that do not depend on when or how long."""
        return {name: value for name, value in self.headers.items() if name not in CHANGING}


@dataclass(frozen=True)
class Family:
    """A metric family: its type, and of its samples the name and the labels."""

    kind: str
    samples: Mapping[tuple[str, tuple[tuple[str, str], ...]], str]

    def label_names(self) -> set[tuple[str, tuple[str, ...]]]:
        return {(name, tuple(label for label, _ in labels)) for name, labels in self.samples}

    def buckets(self) -> list[str]:
        """The bounds of the first series, in order."""
        found = [dict(labels).get("le") for _, labels in self.samples]
        return list(dict.fromkeys(bound for bound in found if bound is not None))


def recorded_reply(request: str) -> Reply:
    """The answer to a request as the recording writes it: `GET :10256/healthz`."""
    text = (RECORDED / "responses.txt").read_text()
    found = re.search(rf"^{re.escape(request)}\n(.*?)(?=\nGET :|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, request
    head, _, body = found[1].partition("\n\n")
    return _reply(head, body)


def recorded_node_port() -> Reply:
    head, _, body = (RECORDED / "health-check-node-port.txt").read_text().partition("\n\n")
    return _reply(head, body)


def _reply(head: str, body: str) -> Reply:
    status, *lines = head.splitlines()
    headers = dict(line.split(": ", 1) for line in lines)
    # A blank line ends each answer of the recording; in that of /configz a path has been shortened.
    length = min(int(headers.get("Content-Length", len(body))), len(body.rstrip("\n")) + 1)
    return Reply(
        int(status.split()[1]), headers, body[:length].removesuffix("\n") + ("\n" if status[9:12] == "404" else "")
    )


def ask(port: int, path: str, method: str = "GET", address: str = "127.0.0.1") -> Reply:
    connection = http.client.HTTPConnection(address, port, timeout=PATIENCE)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return Reply(answer.status, dict(answer.getheaders()), answer.read().decode())
    finally:
        connection.close()


def parse_metrics(text: str) -> dict[str, Family]:
    """The text format, as strictly as Prometheus reads it: samples follow their family's TYPE."""
    families: dict[str, Family] = {}
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in families, f"{name} twice"
            samples = {}
            families[name] = Family(kind, samples)
        elif line and not line.startswith("#"):
            found = _SAMPLE.fullmatch(line)
            assert found is not None, line
            assert found[1].startswith(name), line
            key = found[1], tuple(_LABEL.findall(found[2] or ""))
            assert key not in samples, f"{line}: twice"
            samples[key] = found[3]
    return families
