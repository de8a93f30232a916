"""An OCI runtime for containerd in tests: every container is a process that sleeps. The network is what is tested.

usage, as runc: [--root DIR] [--log FILE] [--log-format json] create --bundle DIR --pid-file FILE ID | start ID |
state ID | kill [--all] ID SIGNAL | delete [--force] ID; OCI_RUNTIME_STATE is a directory for the containers' PIDs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--root", "--log", "--log-format"):
        parser.add_argument(name)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("create", "start", "state", "kill", "delete"):
        command = commands.add_parser(name)
        for option in ("--bundle", "--pid-file"):
            command.add_argument(option)
        for option in ("--all", "--force"):
            command.add_argument(option, action="store_true")
        command.add_argument("container")
        command.add_argument("signal", nargs="?")
    asked = parser.parse_args()
    file = Path(os.environ["OCI_RUNTIME_STATE"], asked.container)
    if asked.command == "create":
        quiet = subprocess.DEVNULL
        pid = str(subprocess.Popen(["sleep", "infinity"], stdin=quiet, stdout=quiet, stderr=quiet).pid)
        file.write_text(pid)
        Path(asked.pid_file).write_text(pid)
    elif asked.command == "kill":
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)
    elif asked.command == "state":
        found = {"ociVersion": "1.0.2", "id": asked.container, "status": "running", "pid": int(file.read_text())}
        sys.stdout.write(json.dumps(found))
    elif asked.command == "delete":
        file.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
