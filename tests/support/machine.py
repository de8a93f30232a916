"""Machines that lack something."""

from __future__ import annotations

from pathlib import Path


def only_these_programs(directory: Path) -> list[str]:
    """What to put before a command line so that a directory stands for all the directories of administrators' programs
    (needs root: a mount namespace)."""
    hide = 'for there in /usr/local/sbin /usr/sbin /sbin; do mount --bind "$0" $there; done && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", hide, str(directory)]
