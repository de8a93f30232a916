"""A report as one self-contained page: the hooks as stations of a map, the packet's line through them, and below it the
way in full, with the text of each rule on demand.

It works without scripts too: then all ways stand one below the other. With them, one outcome is chosen at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from kproxy.cli.page import page
from kproxy.cli.trace.page_map import draw_map
from kproxy.cli.trace.page_style import SCRIPT, STYLE
from kproxy.cli.trace.words import by_hook, depths, outcome_words, packet_words, percent, reply_words, step_words
from kproxy.dataplane.concrete.graph import Step
from kproxy.dataplane.query.chance import chance_words
from kproxy.dataplane.query.report import Report, Reported

MAX_WAYS = 60
"""Outcomes whose way is drawn; all are listed."""


def report_page(report: Report, label: str) -> str:
    """The page as HTML."""
    title = packet_words(report.question)
    header = [
        f"<h1>{_packet(report)}</h1>",
        f'<p class="sub">{escape(title.partition(", ")[2])} · rules: {escape(label)}</p>',
        *(f'<p class="assumed">Assumed: {escape(text)}.</p>' for text in report.assumptions),
    ]
    return page(f"{title} · kproxy trace", STYLE, SCRIPT, header, [*_chooser(report), *_ways(report)])


def _packet(report: Report) -> str:
    head = packet_words(report.question).partition(",")[0]
    protocol, _, flow = head.partition(" ")
    return f'<span class="proto">{escape(protocol)}</span> {escape(flow)}'


def _chooser(report: Report) -> Iterator[str]:
    several = len(report.outcomes) > 1
    yield f'<section aria-labelledby="outcomes"><h2 id="outcomes">{"Outcomes" if several else "Outcome"}</h2>'
    yield '<ol class="outcomes">'
    for index, reported in enumerate(report.outcomes):
        item = reported.outcome
        share = f"{float(item.probability) * 100:.4f}%"
        target = f' href="#way-{index}"' if index < MAX_WAYS else ""
        yield (
            f'<li><a class="outcome {item.verdict.lower()}" data-way="{index}"{target}>'
            f'<span class="bar" style="width:{share}" aria-hidden="true"></span>'
            f'<span class="chance">{escape(percent(item.probability))}</span>'
            f'<span class="verdict">{item.verdict}</span>'
            f'<span class="where">{escape(outcome_words(reported))}</span></a></li>'
        )
    yield "</ol></section>"


def _ways(report: Report) -> Iterator[str]:
    for index, reported in enumerate(report.outcomes[:MAX_WAYS]):
        item = reported.outcome
        heading = f"{percent(item.probability)} {item.verdict} {item.dst}".removesuffix(" ?")
        yield f'<section class="way" id="way-{index}" aria-labelledby="head-{index}" tabindex="-1">'
        colour = f"{item.verdict.lower()}-text"
        yield f'<h2 id="head-{index}">The way to <span class="{colour}">{escape(heading)}</span></h2>'
        yield from draw_map(report.question.packet, item, index)
        yield '<div class="tools"><button type="button" class="all" hidden>Show all rules</button></div>'
        yield '<ol class="stations">'
        for stop, (hook, steps) in enumerate(by_hook(item.steps)):
            yield f'<li class="station" id="stop-{index}-{stop}" data-hook="{escape(hook)}"><h3>{escape(hook)}</h3><ul>'
            yield from _steps(steps)
            yield "</ul></li>"
        yield f'<li class="station end {item.verdict.lower()}"><h3>{item.verdict}</h3>{_end(reported)}</li>'
        yield "</ol></section>"


def _steps(steps: Sequence[Step]) -> Iterator[str]:
    for step, depth in zip(steps, depths(steps), strict=True):
        heading, rule = step_words(step)
        where, _, did = heading.partition(": ")
        kind = f"{step.kind} depth-{min(depth, 6)}"
        words = f'<span class="place">{escape(where)}</span> <span class="did">{escape(did)}</span>'
        if step.note:
            words += f' <span class="note">{escape(step.note)}</span>'
        if rule:
            yield f'<li class="{kind}"><details><summary>{words}</summary><code>{escape(rule)}</code></details></li>'
        else:
            yield f'<li class="{kind}"><p>{words}</p></li>'


def _end(reported: Reported) -> str:
    item = reported.outcome
    chance = chance_words(item.probability)
    exactly = "" if chance.startswith("about") else "exactly "
    rows = [("chance", f"{percent(item.probability)}, {exactly}{chance}")]
    if item.verdict != "INDETERMINATE":
        rows += [("source", item.src), ("destination", item.dst)]
    rows.append(("what happens", outcome_words(reported).removeprefix(f"{item.src} → {item.dst}, ")))
    if reported.reply is not None:
        rows.append(("reply", reply_words(reported.reply)))
    rows += [("depends on", reason) for reason in item.reasons]
    for other in item.possible:
        hook = f" in {other.hook}" if other.hook else ""
        rows.append(("possible", f"{other.verdict} {other.src} → {other.dst}{hook}"))
    cells = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    return f"<dl>{cells}</dl>"
