"""What the tests of several rooms ask for."""

from tests.support.cli import kproxy

__all__ = ["kproxy"]
