"""The `kproxy-cni` executable: environment and standard input in, one JSON document out, exit code 0 or 1."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Entry point."""
    from kproxy.cni.plugin import serve

    # Without a command a person is looking: CNI plugins say what they are.
    if not os.environ.get("CNI_COMMAND") and sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write("kproxy-cni is a CNI plugin: a container runtime starts it. See docs/cni.md.\n")
    code, output = serve(os.environ, sys.stdin.buffer.read() if sys.stdin is not None else b"")
    sys.stdout.write(output)
    sys.stdout.flush()
    # Nothing is left to be torn down; the interpreter's own clean-up takes 3 ms.
    os._exit(code)


if __name__ == "__main__":
    main()
