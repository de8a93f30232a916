"""The entry point of `kproxy` and `python -m kproxy`: `kproxy.cli.main`, with an end to Ctrl-C while it is imported."""

from __future__ import annotations

import os
import signal
from types import FrameType


def kubectl_plugin() -> None:
    """Runs `kubectl-kproxy`, which is what `kubectl kproxy` calls."""
    main(plugin=True)


def main(*, plugin: bool = False) -> None:
    """Runs `kproxy`."""
    # Nothing has been done yet that would have to be undone, so until `run` has its own handler the signal just ends
    # the process; Python's would print where in an import it came. The first process of a container has no default.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    from kproxy.cli.main import main as run

    run(plugin=plugin)


def _end(number: int, _frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        os.write(2, b"kproxy: interrupted\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()
