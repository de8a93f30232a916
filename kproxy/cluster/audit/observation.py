"""What was seen on one node; the report makes findings of it."""

from __future__ import annotations

import msgspec


class BlamedRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule of a node.

    Attributes:
        file: as in the snapshot, `nodes/NAME/iptables-save`. line: from 1; 0 if the file's lines are no rules.
        text: the rule, or the policy of a chain. rule: its number in the chain, from 1; 0 for a policy.
    """

    file: str
    line: int
    table: str
    chain: str
    rule: int
    text: str

    @property
    def location(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.table} {self.chain} {self.rule or 'policy'}"


class EndShare(msgspec.Struct, frozen=True):
    """One thing that becomes of a packet: with which exact probability, the verdict, and its addresses then; "" if it
    is not accepted."""

    probability: str
    verdict: str
    src: str
    dst: str


class AuditWitness(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """A packet that shows it: what kube-proxy's rules alone do with it, and what all rules of the node do.

    Attributes:
        client, packet, expected, found: in words.
        sender: who sends it, as questions name it.
        src, dst, proto, origin: of the packet, as `kproxy trace` has them.
        a, b: what is expected, and what was found.
    """

    node: str
    client: str
    packet: str
    expected: tuple[str, ...]
    found: tuple[str, ...]
    sender: str
    src: str
    dst: str
    proto: str
    origin: str
    a: tuple[EndShare, ...]
    b: tuple[EndShare, ...]


class Observation(msgspec.Struct, frozen=True):
    """Something that is not as it should be.

    Attributes:
        kind: one of `KINDS`.
        cause: what makes two observations one finding: a rule's text, or what is wrong, without the node's name.
        service: `namespace/name:port`, or "".
        address: where the Service answers, as the witness asked it.
        client: who asked.
        since: since when it is so, in words, as far as it is known.
        young: whether that was while the cluster was read.
        mend: the command that mends it, for `{mend}` in the kind's hint.
    """

    kind: str
    node: str
    cause: str
    detail: str = ""
    service: str = ""
    address: str = ""
    client: str = ""
    rule: BlamedRule | None = None
    witness: AuditWitness | None = None
    since: str = ""
    young: bool = False
    mend: str = ""
