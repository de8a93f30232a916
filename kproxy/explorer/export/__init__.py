"""The page as one file: of `kproxy explore`, and as the `--html` of other commands."""
