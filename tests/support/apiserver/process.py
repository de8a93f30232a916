"""An API server as a process of its own, to be killed."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE


class Process:
    """A server as a process of its own."""

    def __init__(self, directory: Path, *more: str) -> None:
        (directory / "tokens").write_text('t,admin,1,"system:masters"\n')
        self.process = subprocess.Popen([*self.command(directory), *more], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        while line.startswith("note: "):
            line = self.process.stderr.readline()
        assert line.startswith("ready: "), line
        self.port = int(line.rsplit(":", 1)[1])
        self.context = ssl.create_default_context(cafile=str(directory / "data" / "ca.crt"))

    @staticmethod
    def command(directory: Path) -> list[str]:
        """What starts it."""
        options = ["--data", str(directory / "data"), "--listen", "127.0.0.1:0"]
        return [sys.executable, "-m", "kproxy", "apiserver", *options, "--token-file", str(directory / "tokens")]

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=PATIENCE)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and decoded answer (text if it is no JSON)."""
        connection = self.connect()
        headers = {"Authorization": "Bearer t", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text

    def get(self, path: str) -> Any:
        status, answer = self.request("GET", path)
        assert status == 200, answer
        return answer
