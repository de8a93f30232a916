"""The Prometheus text format, version 0.0.4, as Go's client writes it.

prometheus-client counts; its own exposition prints `le="1.0"` where Go prints `le="1"`, which are two label values to
whoever selects a bucket, so the text is written here: families and labels sorted, `le` last, numbers as Go's
strconv.FormatFloat(x, 'g', -1, 64).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"


def exposition(registry: Collector) -> str:
    """Everything that a registry holds now."""
    return "".join(_family(family) for family in sorted(registry.collect(), key=_full_name))


def go_number(value: float) -> str:
    """A number as Go prints it: the shortest decimal, with an exponent below 1e-4 and from 1e6 on."""
    if math.isinf(value) or math.isnan(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    power = len(text) + exponent - 1
    prefix = "-" if sign else ""
    if power < -4 or power >= _EXPONENT_FROM:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        return f"{prefix}{text[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02}"
    if power < 0:
        return f"{prefix}0.{'0' * (-power - 1)}{text}"
    whole, fraction = text[: power + 1].ljust(power + 1, "0"), text[power + 1 :]
    return f"{prefix}{whole}.{fraction}" if fraction else prefix + whole


_EXPONENT_FROM: Final = 6  # strconv's, for the shortest form


def _full_name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _family(family: Metric) -> str:
    name = _full_name(family)
    kind = "untyped" if family.type == "unknown" else family.type
    lines = [f"# HELP {name} {_escape(family.documentation, quotes=False)}\n", f"# TYPE {name} {kind}\n"]
    return "".join(lines + [_sample(sample) for sample in _ordered(family.samples)])


def _ordered(samples: Iterable[Sample]) -> Iterator[Sample]:
    """By label values, and of each histogram the buckets, the sum, the count."""
    groups: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        if not sample.name.endswith("_created"):
            key = tuple(sorted(pair for pair in sample.labels.items() if pair[0] != "le"))
            groups.setdefault(key, []).append(sample)
    for key in sorted(groups):
        # Stable: buckets keep their order.
        yield from sorted(groups[key], key=lambda sample: _PARTS.get(sample.name.rpartition("_")[2], 0))


_PARTS: Final = {"bucket": 0, "sum": 1, "count": 2}


def _sample(sample: Sample) -> str:
    pairs = sorted(sample.labels.items(), key=lambda pair: (pair[0] == "le", pair[0]))
    labels = ",".join(f'{name}="{_label(name, value)}"' for name, value in pairs)
    return f"{sample.name}{f'{{{labels}}}' if labels else ''} {go_number(sample.value)}\n"


def _label(name: str, value: str) -> str:
    return go_number(float(value)) if name == "le" else _escape(value, quotes=True)


def _escape(text: str, *, quotes: bool) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text
