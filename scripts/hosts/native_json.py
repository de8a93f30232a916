"""Of what `nft -j list ruleset` printed, the named tables alone.

usage: native_json.py "FAMILY TABLE
FAMILY TABLE..." < JSON
"""

import json
import sys

wanted = {tuple(line.split()) for line in sys.argv[1].splitlines()}
objects = json.load(sys.stdin)["nftables"]


def place(entry):
    kind, value = next(iter(entry.items()))
    return (value.get("family"), value["name"] if kind == "table" else value.get("table"))


kept = [entry for entry in objects if "metainfo" in entry or place(entry) in wanted]
if wanted:
    print(json.dumps({"nftables": kept}))
