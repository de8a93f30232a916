"""How many random examples a test tries: few for everybody, many in `make test-soak`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def tried(few: int, many: int) -> settings:
    """Examples without a deadline, `many` where KPROXY_RANDOM is set; how slowly they are drawn is no failure."""
    count = many if os.environ.get("KPROXY_RANDOM") else few
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
