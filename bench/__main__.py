"""`make bench`: prints tables of what kproxy's steps cost, with the reference's figures beside ours."""

from __future__ import annotations

import sys

from bench import apiserver, apply, audit, cni, diff, explore_page, informer, lab, render, run, trace

BENCHES = {
    "render": render.main,
    "trace": trace.main,
    "diff": diff.main,
    "explore-page": explore_page.main,
    "apply": apply.main,
    "audit": audit.main,
    "informer": informer.main,
    "apiserver": apiserver.main,
    "cni": cni.main,
    "run": run.main,
    "lab": lab.main,
}


def main() -> None:
    names = sys.argv[1:] or list(BENCHES)
    for name in names:
        if name not in BENCHES:
            sys.exit(f"there is no bench {name!r}; there are {', '.join(BENCHES)}")
        BENCHES[name]()


main()
