"""What runs in the lab's own processes: `python -m kproxy.lab.lifecycle.process apiserver DIRECTORY`, or
`kubelet DIRECTORY NODE`.

Not for people: `lab up` starts these.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from kproxy.errors import KproxyError
from kproxy.lab.state import LabDirectory


def main(arguments: list[str]) -> int:
    """Runs one process until it is killed; 1 if it cannot."""
    kind, directory, *rest = arguments
    lab = LabDirectory(Path(directory).name, Path(directory).parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    record = lab.record()
    if record is None:
        sys.stderr.write(f"{directory}: no lab\n")
        return 1
    try:
        if kind == "apiserver":
            from kproxy.lab.lifecycle.server import serve

            serve(lab, record)
        else:
            from kproxy.lab.kubelet.main import run_kubelet

            run_kubelet(lab, record.spec, rest[0])
    except KproxyError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
