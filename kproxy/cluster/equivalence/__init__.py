"""Services and nodes that are alike: what holds of one of them holds of all, with other names and addresses.

`services` has their classes, and those that stand for all; `rule_constants` the addresses and ports by which other
programs' rules could tell Services apart; `interval_partition` the ranges that a number is in.
"""
