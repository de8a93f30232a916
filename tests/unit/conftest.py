"""What the tests of several rooms ask for."""

from tests.support.cli import kproxy, kproxy_on_the_machine

__all__ = ["kproxy", "kproxy_on_the_machine"]
