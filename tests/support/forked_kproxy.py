"""`kproxy` in a process that was forked: its files, its folder and its environment are set, and it runs.

Run by path from `tests.support.cli`, with `arguments`, `files`, `cwd` and `environment` as its globals.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import cast

from kproxy.__main__ import main

given = globals()
for number, (path, mode) in enumerate(zip(given["files"], ("r", "a", "a"), strict=True)):
    with cast(Path, path).open(mode) as opened:
        os.dup2(opened.fileno(), number)
os.chdir(given["cwd"])
os.environ.clear()
os.environ.update(given["environment"])
# multiprocessing has closed the first, and the others buffer as for another process.
sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
sys.argv = ["kproxy", *given["arguments"]]
try:
    main()
finally:
    sys.stdout.flush()
