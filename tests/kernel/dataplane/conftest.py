"""Fixtures that pytest finds for all tests of this directory."""

from tests.support.cli import kproxy

__all__ = ["kproxy"]
