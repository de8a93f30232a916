"""nftables as data: tables, chains, rules, sets, maps, expressions and statements.

From the bottom up, one idea a module:

- `datatype`, `protocol`, `key`: what nft's names mean: data types, header fields, the keys of meta, ct, rt, socket,
  fib;
- `value`: constants as numbers, strings and tuples, made for comparing with a packet's;
- `stateful`, `element`, `expression`, `statement`: what rules and sets are made of;
- `sets`, `objects`, `ruleset`: what tables are made of, and the rule set of a host.

Everything is frozen and compared as the kernel would: counters, handles and the order of elements do not count.
"""

from __future__ import annotations
