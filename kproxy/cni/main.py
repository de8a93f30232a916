"""The `kproxy-cni` executable: environment and standard input in, one JSON document out, exit code 0 or 1.

Started with nothing of CNI in the environment it says what it is, as the CNI project's own plugins do, and does not
wait for standard input.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    if not any(name.startswith("CNI_") for name in os.environ):
        _introduce()
        return
    from kproxy.cni.plugin import serve

    code, output = serve(os.environ, sys.stdin.buffer.read() if sys.stdin is not None else b"")
    sys.stdout.write(output)
    sys.stdout.flush()
    # Nothing is left to be torn down; the interpreter's own clean-up takes 3 ms.
    os._exit(code)


def _introduce() -> None:
    from kproxy import __version__
    from kproxy.overlay.request import VERSIONS

    sys.stderr.write(
        f"kproxy-cni {__version__}, a CNI plugin: a container runtime starts it, see docs/cni.md\n"
        f"CNI protocol versions supported: {', '.join(VERSIONS)}\n"
    )


if __name__ == "__main__":
    main()
