"""Snapshots without names and addresses: everything that tells whose cluster it is is replaced, and the answers stay.

Names get numbers (`ns-1`, `svc-07`), in their order. Addresses are permuted so that two of them share as many leading
bits as before, by which CIDRs, routes and sets keep what they hold; private addresses stay private, and loopback,
link-local, multicast and the like stay what they are. kube-proxy's chains are called as kube-proxy would call them for
the new names. What is not understood is left out, and named: a snapshot never shows what it should not.

A snapshot is read twice. The first time, everything that will be replaced is noted: names, so that they are numbered in
order, and the bounds of networks and ranges, which the permutation must keep. The second time it is replaced. Both are
the same code: `words` only notes until `Words.settle`.

`addresses` permutes, `names` numbers, `words` replaces in texts, `rules` knows texts of rules, `hostfiles` and
`objects` the other files, `redact` all of a snapshot.
"""
