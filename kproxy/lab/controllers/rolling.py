"""How many replicas each ReplicaSet of a Deployment should have next: arithmetic only.

kubernetes/kubernetes pkg/controller/deployment/util/deployment_util.go and rolling.go.
"""

from __future__ import annotations

import msgspec


class Replicas(msgspec.Struct, frozen=True):
    """One ReplicaSet: its key, what it is asked for, how many are there and available. Older sets come first."""

    key: str
    desired: int
    present: int
    available: int


def resolve(value: object, replicas: int, *, up: bool) -> int:
    """An int-or-percent: `25%` of the replicas, rounded up or down; 0 for what is neither."""
    if isinstance(value, int):
        return value
    text = str(value)
    if text.endswith("%") and text[:-1].isdigit():
        share = int(text[:-1]) * replicas
        return -(-share // 100) if up else share // 100
    return 0


def fenceposts(surge: object, unavailable: object, replicas: int) -> tuple[int, int]:
    """maxSurge and maxUnavailable as numbers; both 0 would never get anywhere, so then one may be unavailable
    (ResolveFenceposts)."""
    max_surge = resolve(surge, replicas, up=True)
    max_unavailable = resolve(unavailable, replicas, up=False)
    if max_surge == 0 and max_unavailable == 0:
        max_unavailable = 1
    return max_surge, max_unavailable


def plan_rolling(
    new: Replicas, old: list[Replicas], replicas: int, max_surge: int, max_unavailable: int
) -> dict[str, int]:
    """What a rolling update scales next: the new set up as far as the surge lets it, the old ones down as far as enough
    pods stay available. Keys that need no change are left out."""
    changes: dict[str, int] = {}
    total = new.desired + sum(item.desired for item in old)
    if new.desired > replicas:
        changes[new.key] = replicas
    elif new.desired < replicas and (room := replicas + max_surge - total) > 0:
        changes[new.key] = new.desired + min(room, replicas - new.desired)
    changes.update(_scale_down_old(new, old, replicas - max_unavailable))
    return changes


def _scale_down_old(new: Replicas, old: list[Replicas], least: int) -> dict[str, int]:
    total = new.desired + sum(item.desired for item in old)
    budget = total - least - (new.desired - new.available)
    changes: dict[str, int] = {}
    if budget <= 0:
        return changes
    # Those that are not available go first: no client notices (cleanupUnhealthyReplicas).
    for item in old:
        dead = min(item.desired - item.available, budget)
        if dead > 0:
            changes[item.key] = item.desired - dead
            budget -= dead
    spare = new.available + sum(item.available for item in old) - least
    for item in old:
        here = changes.get(item.key, item.desired)
        drop = min(here, max(0, min(spare, budget)))
        if drop:
            changes[item.key] = here - drop
            spare -= drop
            budget -= drop
    return changes
