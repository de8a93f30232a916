"""All rules of one hop of an answer, matched or not."""

from __future__ import annotations

import msgspec

from kproxy.cluster.journey.path import Hop
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.explorer.answers.ask import AskRule, host_report, walk
from kproxy.explorer.answers.evaluated_rules import EvaluatedHook, evaluated_hooks
from kproxy.explorer.errors import bad_input, cannot
from kproxy.explorer.model.model import HOST, Model


class AskedRules(msgspec.Struct, frozen=True):
    host: str
    hooks: tuple[EvaluatedHook, ...]


def hop_rules(model: Model, asked: AskRule) -> AskedRules:
    """The rules of one hop of one journey.

    Raises:
        Refusal: there is no such hop.
    """
    with model.lock:
        if model.known.cluster is None:
            question, reported, _ = host_report(model, asked)
            if not 0 <= asked.journey < len(reported) or asked.direction != "there" or asked.hop:
                raise bad_input("hop: there is only the first one of each way there", "hop")
            outcome = reported[asked.journey].outcome
            hop = Hop(HOST, question.packet, outcome)
            return AskedRules(HOST, tuple(evaluated_hooks(model.index(question.packet.family), hop)))
        _, found = walk(model, asked)
        if not 0 <= asked.journey < len(found):
            raise bad_input(f"journey: a number from 0 to {len(found) - 1} expected", "journey")
        if asked.direction not in ("there", "back"):
            raise bad_input("direction: there or back expected", "direction")
        way = found[asked.journey]
        hops = way.there if asked.direction == "there" else way.back
        if not 0 <= asked.hop < len(hops):
            raise bad_input(f"hop: a number from 0 to {len(hops) - 1} expected", "hop")
        hop = hops[asked.hop]
        index = model.network.host(hop.host).indexes[hop.arrived.family]
        try:
            return AskedRules(hop.host, tuple(evaluated_hooks(index, hop)))
        except DataplaneError as error:
            raise cannot(str(error)) from error
