"""The image's health check: exit 0 if what the container runs is healthy, 1 with a line that says why not.

It asks what process 1 serves: `kproxy run` on its health port (`/livez`), `kproxy apiserver` where it listens
(`/readyz`); `kproxy overlay run` makes its --ready-file. Of other commands it only says that they run. Where a
configuration moves the agent's health port, KPROXY_HEALTH names the URL to ask.
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

TIMEOUT = 4.0
"""Seconds; less than the Dockerfile's own bound, so that the reason is told."""


def option(words: Sequence[str], name: str, default: str) -> str:
    """The value of `--name value` or `--name=value`, the last one where there are several."""
    found = default
    for i, word in enumerate(words):
        if word == name and i + 1 < len(words):
            found = words[i + 1]
        elif word.startswith(f"{name}="):
            found = word.partition("=")[2]
    return found


def url(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """What to ask, for the words of process 1; empty where nothing is served."""
    if environment.get("KPROXY_HEALTH"):
        return environment["KPROXY_HEALTH"]
    command = _command(words)
    if command == "run":
        return f"http://{_reachable(option(words, '--healthz-bind-address', '0.0.0.0:10256'))}/livez"
    if command == "apiserver":
        return f"https://{_reachable(option(words, '--listen', '127.0.0.1:6443'))}/readyz"
    return ""


def _command(words: Sequence[str]) -> str:
    """The word after kproxy's own name, before which an interpreter's stands."""
    names = [Path(word).name for word in words]
    return words[names.index("kproxy") + 1] if "kproxy" in names[:-1] else ""


def _reachable(listen: str) -> str:
    """An address to connect to, for one to listen on."""
    host, _, port = listen.rpartition(":")
    everywhere = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
    return f"{everywhere.get(host, host)}:{port}"


def problem(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Why the container is not healthy; empty if it is."""
    ready_file = option(words, "--ready-file", "")
    if _command(words) == "overlay" and ready_file and not Path(ready_file).exists():
        return f"{ready_file} is not there yet"
    asked = url(words, environment)
    if not asked:
        return ""
    # The API server's certificate is of its own authority, and the question has no secret in it.
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=anybody))
    try:
        with opener.open(asked, timeout=TIMEOUT):
            return ""
    except urllib.error.HTTPError as error:
        return f"{asked}: {error.code}: {error.read(300).decode(errors='replace').strip()}"
    except (OSError, ValueError) as error:
        return f"{asked}: {error}"


if __name__ == "__main__":
    found = problem(Path("/proc/1/cmdline").read_text(errors="replace").split("\0"), os.environ)
    if found:
        sys.exit(found)
