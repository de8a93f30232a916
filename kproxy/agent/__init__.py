"""The running proxy: watches an API server or files, and keeps a node's rules, with health, metrics and drift repair.

`run.Agent` is the whole; docs/run.md is the user's page. How data flows:

    sources (informers or files) -> inbox -> proxier (services -> render -> linux), paced by a runner, one per family
    node (the Node object, the host) -> render options -> proxier
    proxier -> health, metrics, log

Everything that decides (runner, proxier, drift watch) gets its clock as an argument and starts no thread; `run` has the
threads.
"""
