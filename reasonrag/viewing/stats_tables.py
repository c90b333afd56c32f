"""What a run or data set shows in numbers: the tables of an `Overview`, whose histograms the page draws."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence

from preference.causes import NOT_DEAD, CauseCount
from reasonrag.rendering import (
    Line,
    Part,
    Table,
    counted,
    counts_text,
    dollars,
    gold_rows,
    percent,
    shows,
    tokens_text,
    warned,
)
from reasonrag.viewing.explanations import end_words
from reasonrag.viewing.overview import Overview

_LONGEST_EXAMPLE = 200
"""In characters: a query may be as long as a reply."""
_TYPES = ("query", "evidence", "answer", "unreadable")


@shows(Overview)
def stats_parts(found: Overview) -> Iterator[Part]:
    """Warnings and where questions die, then the numbers and pairs by depth."""
    yield from warned(found.warnings)
    if found.trees and found.trees.causes:
        head = ("outcomes", "questions", "golden answer", "example")
        yield Table("where questions die", _causes(found.trees.causes), head)
    yield Table(f"{found.kind} {found.path}", [*_about(found), *_costs(found)])
    yield from _layers(found)
    place = shlex.quote(found.path)
    yield Line(f"next: reasonrag show {place} QUESTION_ID, or reasonrag view {place}")


def _about(found: Overview) -> Iterator[tuple[str, object]]:
    yield "data", ", ".join(found.splits) or "-"
    yield "recipe; reward", f"{', '.join(found.recipes) or '-'}; {', '.join(found.rewards) or '-'}"
    yield "agent", found.agents
    yield "teacher", ", ".join(found.teachers) or "unknown"
    ends = {end_words(name): count for name, count in found.ends.items()}
    yield "questions", f"{found.questions:,}: {counts_text(ends)}"
    yield "failure causes", found.failures_by_cause
    paired = found.questions_with_a_pair
    yield "questions with a pair", f"{paired:,}{_of(paired, found.questions)}"
    yield "pairs", f"{found.pairs:,} of {found.candidates:,} candidates{_of(found.pairs, found.candidates)}"
    yield "labels", found.pairs_by_label
    yield "tags", found.pairs_by_tag
    yield "mean margin, confidence", [found.mean_margin, found.mean_confidence]
    yield from gold_rows(found.gold_agreement)
    yield "needs review", f"{counted(found.doubtful, 'pair')} against gold or uncounted answers, or of same findings"
    yield "dropped", found.dropped
    if facts := found.trees:
        yield "steps in trees", facts.steps
        yield "continuations", facts.continuations
        yield "mean F1, EM, outcome", [facts.mean_f1, facts.mean_em, facts.mean_outcome]
        yield "degenerate", facts.degenerate
        yield "unreadable replies", facts.parse_failures_by_cause
        yield "repair turns", facts.repair_turns


def _costs(found: Overview) -> Iterator[tuple[str, object]]:
    usage = found.usage
    if usage is None or not usage.calls:  # trees that were imported do not say
        yield "completions, cost", "unknown"
        return
    calls = f"{usage.calls:,} in {counted(usage.requests, 'request')}"
    yield "completions", "; ".join([calls, *_shares(usage.calls, found, lambda each: f"{each:,.1f}")])
    yield "tokens", tokens_text(usage)
    cost = usage.cost_usd
    yield "cost", "unknown" if cost is None else "; ".join([dollars(cost), *_shares(cost, found, dollars)])


def _shares(total: float, found: Overview, form: Callable[[float], str]) -> list[str]:
    """Of a question and of a pair."""
    among = (("question", found.questions), ("pair", found.pairs))
    return [f"{form(total / many)} per {what}" for what, many in among if many]


def _layers(found: Overview) -> Iterator[Table]:
    """Pairs by depth and action type of the chosen step."""
    layers = found.pairs_by_layer
    types = [each for each in _TYPES if any(each in counts for counts in layers.values())]
    if rows := [(at, *(of.get(each, 0) for each in types), sum(of.values())) for at, of in layers.items()]:
        yield Table("pairs by depth and action type of the chosen step", rows, ("depth", *types, "pairs"))


def _causes(causes: Sequence[CauseCount]) -> Iterator[tuple[object, ...]]:
    """The tree of causes, each with an example and what that lacks."""
    dead = [each for each in causes if each.cause not in NOT_DEAD]
    for each in causes:
        if dead and each is dead[0]:
            sums = [sum(getattr(one, name) for one in dead) for name in ("questions", "with_golden_answer")]
            yield "none right", *sums, ""
        name = f"{'  ' * (each in dead)}{end_words(each.cause)}"
        yield name, each.questions, each.with_golden_answer, _example(each)


def _example(found: CauseCount) -> str:
    text = found.example + (f"; lacks {', '.join(found.lacking)}" if found.lacking else "")
    return text if len(text) <= _LONGEST_EXAMPLE else f"{text[: _LONGEST_EXAMPLE - 1]}…"


def _of(part: int, whole: int) -> str:
    return f" ({percent(part / whole, 0)})" if whole else ""
