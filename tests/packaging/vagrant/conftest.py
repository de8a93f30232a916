"""`vagrant/` is no installed package: its checks run from the tree, as `python -m vagrant.checks` does."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
