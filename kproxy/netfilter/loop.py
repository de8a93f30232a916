"""Loops of jumps among the chains of a table, in both rule languages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def find_loop(jumps: Mapping[str, Sequence[str]], starts: Iterable[str]) -> tuple[str, ...]:
    """A chain that one of the chains `starts` leads to and that leads to itself: the chains in order with the first one
    again at the end; empty if there is none. `jumps` are where each chain jumps or goes to."""
    done: set[str] = set()
    for start in starts:
        if start in done:
            continue
        path = [start]
        on_path = {start}
        pending = [iter(jumps[start])]
        while path:
            following = next(pending[-1], None)
            if following is None:
                pending.pop()
                done.add(path[-1])
                on_path.discard(path.pop())
            elif following in on_path:
                return (*path[path.index(following) :], following)
            elif following in jumps and following not in done:
                path.append(following)
                on_path.add(following)
                pending.append(iter(jumps[following]))
    return ()
