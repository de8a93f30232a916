"""What can go wrong with rule text: it cannot be read, or it cannot be applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.errors import InputError, KproxyError

if TYPE_CHECKING:
    from kproxy.netfilter.iptables.ruleset import Ruleset


class RuleTextError(InputError):
    """Text that cannot be read as rules.

    `source` is the file as the user named it, `line` counts from 1 (0: unknown, or a rule on its own), `text` is the
    line itself and `expected` says what should have stood there.
    """

    def __init__(self, expected: str, *, text: str = "", source: str = "", line: int = 0) -> None:
        where = ": ".join(filter(None, (source, f"line {line}" if line else "")))
        shown = text if len(text) <= 300 else f"{text[:300]}..."
        super().__init__((f"{where}: " if where else "") + expected + (f": {shown!r}" if text else ""))
        self.expected = expected
        self.text = text
        self.source = source
        self.line = line


class RuleSyntaxError(RuleTextError):
    """Text that is not a rule or a rule set of iptables."""


class RestoreError(KproxyError):
    """Restore input that is well formed and that the kernel would refuse, such as deleting a chain that is in use.

    `table`, `line` and `reason` say where and why. iptables-restore commits table by table, so the tables before the
    failing one have taken effect: `applied` is the ruleset as it then stands.
    """

    def __init__(self, reason: str, *, table: str, line: int, source: str, applied: Ruleset) -> None:
        super().__init__(f"{source}: line {line}: table {table}: {reason}")
        self.reason = reason
        self.table = table
        self.line = line
        self.source = source
        self.applied = applied
