"""A kubeconfig file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def kubeconfig(path: Path, *, server: str = "https://one:6443", name: str = "one", **parts: Any) -> str:
    """Writes a kubeconfig with one context, cluster and user of this name."""
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **parts.get("context", {})}}],
        "clusters": [{"name": name, "cluster": {"server": server, **parts.get("cluster", {})}}],
        "users": [{"name": name, "user": parts.get("user", {})}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(body))
    return str(path)
