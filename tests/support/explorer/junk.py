"""Random bodies of requests: of the names that the explorer's API knows, in forms that it does not."""

from __future__ import annotations

from hypothesis import strategies as st

POSTS = ("map", "ask", "rules", "whatif", "whatif/save", "compare", "services/shop/web")
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20)
    | st.sampled_from(["pod/shop/cart-0", "svc/shop/web", "10.96.0.7:80", "node/n1", "nftables", "n1", "shop/web",
                       "against", "objects", "diff", "drift", "migrate", "mode"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["from", "to", "port", "edits", "do", "set", "kind", "a", "b", "node", "assume", "family",
                         "manifest", "hop", "journey", "direction", "service", "pod", "compare",
                         "source"]) | st.text(max_size=5),
        inner, max_size=5,
    ),
    max_leaves=8,
)  # fmt: skip
