"""A kernel in memory whose iptables or nft fails, and whose rules somebody else changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kproxy.linux.errors import LinuxError, LockHeldError, ToolFailedError
from kproxy.linux.iptables.ownership import owned_chains
from kproxy.linux.nftables.readback import Listing, parse_listing
from kproxy.linux.nftables.table import TableText
from kproxy.linux.sync.iptables.jumps import is_our_jump
from kproxy.linux.sync.iptables.reconcile import read_dump
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.text import ChainText
from kproxy.services import IPFamily
from tests.support.kernel.table_edits import TABLE_KINDS, TableEditor
from tests.support.linux.fake import MemoryExecutor, refused, transactions
from tests.support.linux.nft_memory import MemoryNft

if TYPE_CHECKING:
    from tests.support.agent.simulation import World

DRIFTS: Final = ("flush nat", "flush filter", "flush all", "rule", "jump", "canary", "extra", "edit")


class FaultyKernel:
    """An executor. `restores` counts what was asked of it; `generation` rises with each transaction."""

    def __init__(self, world: World, family: IPFamily) -> None:
        self.memory = MemoryExecutor(family)
        self.generation = 1
        self.restores = 0
        self._world = world
        self._broken_until = 0.0

    @property
    def family(self) -> IPFamily:
        return self.memory.family

    @property
    def variant(self) -> Variant:
        return self.memory.variant

    def save(self, *, counters: bool) -> str:
        self._fail()
        return self.memory.save(counters=counters)

    def fingerprint(self) -> object | None:
        return None

    def dormant(self) -> frozenset[str]:
        return self.memory.dormant()

    def wake(self, table: str) -> None:
        self.memory.wake(table)

    def restore(self, text: str) -> None:
        self.restores += 1
        self._fail()
        kind = self._world.fault("fails once", "fails half way", "fails for a while")
        if kind == "fails for a while":
            self._broken_until = min(self._world.now + 60.0, self._world.faults_until)
        parts = transactions(text)
        if kind == "fails half way":
            self._commit(parts[: len(parts) // 2])
        if kind:
            raise refused()
        self._commit(parts)

    def break_until(self, time: float) -> None:
        """From now on everything fails, until this time."""
        self._broken_until = time

    def drift(self, kind: str = "") -> bool:
        """Somebody else changes something of ours; whether there was anything to change."""
        random = self._world.random
        dump = read_dump(self.memory, counters=False)
        owned = owned_chains(dump)
        kind = kind or random.choice(DRIFTS)
        text = ""
        if kind.startswith("flush"):
            tables = ("nat", "filter", "mangle") if kind == "flush all" else (kind.split()[1],)
            text = "".join(_emptied(dump.tables.get(table, {}), table) for table in tables)
        elif kind == "jump":
            jumps = [
                (table, name, rule)
                for table, chains in dump.tables.items()
                for name, chain in chains.items()
                if chain.is_builtin
                for rule in chain.rules
                if is_our_jump(table, rule)
            ]
            if jumps:
                table, name, rule = random.choice(jumps)
                text = f"*{table}\n-D {name} {rule}\nCOMMIT\n"
        elif kind == "canary" and ("nat", "KUBE-PROXY-CANARY") in owned:
            text = "*nat\n-X KUBE-PROXY-CANARY\nCOMMIT\n"
        elif kind == "extra":
            text = "*nat\n:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]\n-A KUBE-SEP-AAAAAAAAAAAAAAAA -j RETURN\nCOMMIT\n"
        else:
            full = [
                (table, name, chain.rules)
                for table, name in owned
                if (chain := dump.chain(table, name)) is not None and chain.rules
            ]
            if full:
                table, name, rules = random.choice(full)
                text = f"*{table}\n-D {name} {random.randrange(len(rules)) + 1}\nCOMMIT\n"
                if kind == "edit":
                    text = f"*{table}\n-I {name} 1 -j RETURN\nCOMMIT\n"
        if text:
            self._world.faults[kind] += 1
            self._commit(transactions(text))
        return bool(text)

    def _commit(self, parts: list[str]) -> None:
        for part in parts:
            self.memory.restore(part)
            self.generation += 1

    def _fail(self) -> None:
        if self._world.now < self._broken_until:
            raise ToolFailedError("iptables is broken")
        if self._world.fault("locked"):
            # It waited for the lock as long as it may.
            self._world.now += 5.0
            raise LockHeldError("the xtables lock was not free within 5 s")


class FaultyTables(MemoryNft):
    """An executor of nftables mode. `restores` counts its scripts; `generation` rises with each transaction."""

    def __init__(self, world: World, family: IPFamily) -> None:
        super().__init__(family)
        self.generation = 1
        self.restores = 0
        self._world = world
        self._broken_until = 0.0

    def list_table(self) -> str | None:
        self._fail()
        return super().list_table()

    def held(self, desired: TableText) -> Listing:
        """What is there, in the words of this table, whether nft fails or not."""
        text = super().list_table()
        return Listing(None) if text is None else parse_listing(text, desired)

    def run(self, script: str) -> None:
        self.restores += 1
        self._fail()
        kind = self._world.fault("fails once", "killed", "fails for a while")
        if kind == "fails for a while":
            self._broken_until = min(self._world.now + 60.0, self._world.faults_until)
        if kind and kind != "killed":
            raise refused()
        self._commit(script)
        if kind:
            raise ToolFailedError("nft was ended by signal 9")

    def break_until(self, time: float) -> None:
        """From now on everything fails, until this time."""
        self._broken_until = time

    def drift(self, kind: str = "") -> bool:
        """Somebody else changes something of ours; whether it could be changed."""
        editor = TableEditor(self._world.desired_table(), self.family, self._world.random)
        kind = kind or self._world.random.choice(sorted(TABLE_KINDS))
        before = self.ruleset
        try:
            self._commit(editor.edit(kind).text)
        except (LinuxError, IndexError):
            # The table is not as it should be already, or no Service has what would be changed.
            return False
        self._world.faults[kind] += 1
        return self.ruleset != before

    def _commit(self, script: str) -> None:
        super().run(script)
        self.generation += 1

    def _fail(self) -> None:
        if self._world.now < self._broken_until:
            raise ToolFailedError("nft is broken")


def _emptied(chains: Mapping[str, ChainText], table: str) -> str:
    """A flush: every chain without rules, and those that are not built in gone."""
    flushed = "".join(f"-F {name}\n" for name in chains)
    gone = "".join(f"-X {name}\n" for name, chain in chains.items() if not chain.is_builtin)
    return f"*{table}\n{flushed}{gone}COMMIT\n" if chains else ""
