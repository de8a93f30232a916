"""The servers that these tests speak to."""

from tests.support.apiserver.server import api, shared

__all__ = ["api", "shared"]
