"""What rules ask of the connection, as conditions on the variables: state, status, direction, the original tuple.

Theory: docs/symbolic.md, "The function". Semantics are those of `concrete.matches.state`.
"""

from __future__ import annotations

from kproxy.dataplane.symbolic.free_variables import BEFORE, FreeVariable, Stage
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.variables import Variables
from kproxy.netfilter.address import Network
from kproxy.netfilter.iptables.codec import Range
from kproxy.netfilter.iptables.matches import ConntrackMatch, StateMatch


class ConnectionConditions:
    """Translates `-m conntrack` and `-m state`, and what `ct` asks in the same way."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables

    def match(self, match: ConntrackMatch | StateMatch, stage: Stage) -> Node:
        variables, diagrams = self._variables, self._variables.diagrams
        wanted = match.state if isinstance(match, StateMatch) else match.ctstate
        parts = [] if wanted is None else [variables.signed(self.state(wanted.value, stage), wanted)]
        if isinstance(match, StateMatch):
            return diagrams.all_of(parts)
        if not stage.tracked:
            return diagrams.all_of(parts) if parts else FALSE
        if match.ctdir is not None:
            backward = FALSE if stage.fresh else diagrams.equals(variables.reply, 1)
            parts.append(diagrams.negate(backward) if match.ctdir == "ORIGINAL" else backward)
        new = stage.fresh and not stage.looped
        for name, level, network in (
            ("ctorigsrc", variables.src if new else None, match.ctorigsrc),
            ("ctorigdst", variables.dst if new and stage.phase == BEFORE else None, match.ctorigdst),
            ("ctreplsrc", variables.dst if new else None, match.ctreplsrc),
            ("ctrepldst", variables.src if new else None, match.ctrepldst),
        ):
            if network is not None:
                if level is None:
                    text = f"--{name} {network.value}"
                    held = variables.free(FreeVariable("conntrack", text, (name, network.value)))
                else:
                    held = variables.address_under(level, network.value)
                parts.append(variables.signed(held, network))
        for name, level, ports in (
            ("ctorigsrcport", variables.sport if new else None, match.ctorigsrcport),
            ("ctorigdstport", variables.dport if new and stage.phase == BEFORE else None, match.ctorigdstport),
            ("ctreplsrcport", variables.dport if new else None, match.ctreplsrcport),
            ("ctrepldstport", variables.sport if new else None, match.ctrepldstport),
        ):
            if ports is not None:
                if level is None:
                    held = variables.free(
                        FreeVariable("conntrack", f"--{name} {ports.value.text()}", (name, ports.value))
                    )
                else:
                    held = variables.port_in(level, ports.value)
                parts.append(variables.signed(held, ports))
        if match.ctproto is not None:
            parts.append(variables.signed(diagrams.equals(variables.protocol, match.ctproto.value), match.ctproto))
        if match.ctstatus is not None:
            parts.append(variables.signed(self.status(match.ctstatus.value, stage), match.ctstatus))
        if match.ctexpire is not None:
            parts.append(variables.free(FreeVariable("opaque", match.to_save(), (stage.hook, stage.table))))
        return diagrams.all_of(parts)

    def state(self, names: frozenset[str], stage: Stage) -> Node:
        variables, diagrams = self._variables, self._variables.diagrams
        if stage.table == "raw" and not stage.looped:  # only a rule of this table can have said anything yet
            answers = [TRUE if name in names else FALSE for name in ("UNTRACKED", "INVALID")]
            return diagrams.ite(diagrams.equals(variables.untracked, 1), *answers)
        if stage.ctstate in names:
            return TRUE
        result = FALSE
        if stage.tracked:
            for name, level in (("DNAT", variables.dnat), ("SNAT", variables.snat)):
                # The first packet's connection is not translated before the nat tables have translated it.
                if name in names and not (
                    stage.fresh and (stage.phase == BEFORE or (name == "SNAT" and not stage.looped))
                ):
                    result = diagrams.either(result, diagrams.equals(level, 1))
        return result

    def status(self, names: frozenset[str], stage: Stage) -> Node:
        if stage.ctstate == "NEW":
            return TRUE if stage.looped and "CONFIRMED" in names else FALSE
        if stage.ctstate == "ESTABLISHED" and names & {"SEEN_REPLY", "CONFIRMED"}:
            return TRUE
        result = FALSE
        for name in sorted(names):
            result = self._variables.diagrams.either(
                result, self._variables.free(FreeVariable("conntrack", f"--ctstatus {name}", name))
            )
        return result


def asked_of_packet(variables: Variables, where: tuple[object, ...]) -> Node | None:
    """What a question about the original tuple asks of a packet that still has its addresses and ports: `where` is
    that of the question's free variable. None if it asks something else."""
    name, wanted = where
    if name == "ctorigdst" and isinstance(wanted, Network):
        return variables.address_under(variables.dst, wanted)
    if name == "ctorigdstport" and isinstance(wanted, Range):
        return variables.port_in(variables.dport, wanted)
    if name == "ctorigsrc" and isinstance(wanted, Network):
        return variables.address_under(variables.src, wanted)
    if name == "ctorigsrcport" and isinstance(wanted, Range):
        return variables.port_in(variables.sport, wanted)
    return None
