"""What each suite tries: few examples and cases for everybody, some more in CI, all of them in `make test-soak`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import HealthCheck, settings


def tried(few: int, many: int) -> settings:
    """Examples without a deadline, `many` where KPROXY_RANDOM is set; how slowly they are drawn is no failure."""
    count = many if os.environ.get("KPROXY_RANDOM") else few
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))


def spread(cases: Sequence[Any], quick: int, slow: int) -> list[ParameterSet]:
    """Parameters of a test: `quick` cases for everybody and `slow` more in CI, evenly chosen; the soak has the others.

    A case that is a tuple is several parameters.
    """
    ci = [number * len(cases) // (quick + slow) for number in range(quick + slow)]
    always = [ci[number * len(ci) // quick] for number in range(quick)]
    return [
        pytest.param(
            *(case if type(case) is tuple else (case,)),
            marks=() if number in always else pytest.mark.slow if number in ci else pytest.mark.soak,
        )
        for number, case in enumerate(cases)
    ]
