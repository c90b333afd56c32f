"""What a person sees of a run or data set in numbers: the tables of an `Overview`, whose histograms the page draws.

Decides the drawing only. Names from files are never markup here.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

from rich.markup import escape
from rich.table import Column, Table

from preference.causes import NOT_DEAD, CauseCount
from reasonrag.rendering import counted, of_which_reasoning, percent
from reasonrag.terminal import (
    counts_text,
    dollars,
    gold_rows,
    on_one_line,
    print_shown,
    print_table,
    print_titled,
    share_text,
    warn,
)
from reasonrag.viewing.explanations import end_words
from reasonrag.viewing.overview import Overview, TreeFacts

_LONGEST_EXAMPLE = 200
"""In characters: a query may be as long as a reply."""
_TYPES = ("query", "evidence", "answer", "unreadable")
_ENDS = ("right", "partly right", "wrong", "failed")


def show_stats(found: Overview) -> None:
    """The numbers, pairs by depth, lengths of paths, then warnings."""
    facts = found.trees
    print_table(f"{found.kind} {found.path}", [*_about(found), *(_of_trees(facts) if facts else []), *_costs(found)])
    _layers(found)
    if facts and facts.ends_by_steps:
        _ends(facts.ends_by_steps)
    if facts and facts.causes:
        _causes(facts.causes)
    warn(found.warnings)
    place = shlex.quote(on_one_line(found.path))
    print_shown(f"next: reasonrag show {place} QUESTION_ID, or reasonrag view {place}")


def _about(found: Overview) -> list[tuple[str, str]]:
    return [
        ("data", ", ".join(found.splits) or "-"),
        ("recipe; reward", f"{', '.join(found.recipes) or '-'}; {', '.join(found.rewards) or '-'}"),
        ("teacher", ", ".join(found.teachers) or "unknown"),
        ("questions", f"{found.questions:,}: {counts_text(_in_words(found.ends))}"),
        ("failure causes", counts_text(found.failures_by_cause)),
        (
            "questions with a pair",
            f"{found.questions_with_a_pair:,}{_of(found.questions_with_a_pair, found.questions)}",
        ),
        ("pairs", f"{found.pairs:,} of {found.candidates:,} candidates{_of(found.pairs, found.candidates)}"),
        ("labels", counts_text(found.pairs_by_label)),
        ("tags", counts_text(found.pairs_by_tag)),
        ("mean margin, confidence", f"{share_text(found.mean_margin)}, {share_text(found.mean_confidence)}"),
        *gold_rows(found.gold_agreement),
        ("needs review", f"{counted(found.doubtful, 'pair')} against gold or uncounted answers, or of same findings"),
        ("dropped", counts_text(found.dropped)),
    ]


def _of_trees(facts: TreeFacts) -> list[tuple[str, str]]:
    return [
        ("steps in trees", f"{facts.steps:,}"),
        ("continuations", f"{facts.continuations:,}"),
        ("mean F1, EM, outcome", ", ".join(map(share_text, (facts.mean_f1, facts.mean_em, facts.mean_outcome)))),
        ("degenerate", counts_text(facts.degenerate)),
        ("unreadable replies", counts_text(facts.parse_failures_by_cause)),
        ("repair turns", f"{facts.repair_turns:,}"),
    ]


def _costs(found: Overview) -> list[tuple[str, str]]:
    usage = found.usage
    if usage is None or not usage.calls:  # trees that were imported do not say
        return [("completions, cost", "unknown")]
    reasoning = of_which_reasoning(usage.reasoning_tokens)
    calls = f"{usage.calls:,} in {counted(usage.requests, 'request')}"
    return [
        ("completions", "; ".join([calls, *_shares(usage.calls, found, lambda each: f"{each:,.1f}")])),
        ("tokens", f"{usage.prompt_tokens:,} in, {usage.completion_tokens:,} out{reasoning}"),
        (
            "cost",
            "unknown"
            if usage.cost_usd is None
            else "; ".join([dollars(usage.cost_usd), *_shares(usage.cost_usd, found, dollars)]),
        ),
    ]


def _shares(total: float, found: Overview, form: Callable[[float], str]) -> list[str]:
    """Of a question and of a pair."""
    among = (("question", found.questions), ("pair", found.pairs))
    return [f"{form(total / many)} per {what}" for what, many in among if many]


# -- tables ----------------------------------------------------------------------------------------------------


def _layers(found: Overview) -> None:
    """Pairs by depth and action type of the chosen step, and the share of distinct siblings at that depth."""
    diversity = found.trees.diversity_by_layer if found.trees else {}
    layers = sorted({*found.pairs_by_layer, *diversity}, key=int)
    types = [each for each in _TYPES if any(each in counts for counts in found.pairs_by_layer.values())]
    if not layers:
        return
    table = _table("depth", *types, "pairs")
    if diversity:
        table.add_column("distinct siblings", justify="right")
    for layer in layers:
        counts = found.pairs_by_layer.get(layer, {})
        row = [layer, *(f"{counts.get(each, 0):,}" for each in types), f"{sum(counts.values()):,}"]
        table.add_row(*row, *([share_text(diversity.get(layer))] if diversity else []))
    print_titled("pairs by depth and action type of the chosen step", table)


def _ends(by_steps: Mapping[str, Mapping[str, int]]) -> None:
    names = [each for each in _ENDS if any(each in counts for counts in by_steps.values())]
    table = _table("steps", *names)
    for steps, counts in by_steps.items():
        table.add_row(steps, *(f"{counts.get(each, 0):,}" for each in names))
    print_titled("continuations by length and result", table)


def _causes(causes: Sequence[CauseCount]) -> None:
    """The tree of causes, each with an example: what it lacks, and the query nearest to that."""
    table = Table(Column("outcomes", no_wrap=True))
    for heading in ("questions", "golden answer", "left early"):
        table.add_column(heading, justify="right")
    table.add_column("example", overflow="fold")
    dead = [each for each in causes if each.cause not in NOT_DEAD]
    for each in causes:
        if dead and each is dead[0]:
            sums = (
                sum(one.questions for one in dead),
                sum(one.with_golden_answer for one in dead),
                sum(one.left_early for one in dead),
            )
            table.add_row("none right", *(f"{many:,}" for many in sums))
        name = f"{'  ' * (each in dead)}{end_words(each.cause)}"
        counts = (each.questions, each.with_golden_answer, each.left_early)
        table.add_row(name, *(f"{many:,}" for many in counts), escape(on_one_line(_example(each))))
    print_titled("where questions die", table)


def _example(found: CauseCount) -> str:
    text = found.example + (f"; lacks {', '.join(found.lacking)}" if found.lacking else "")
    return text if len(text) <= _LONGEST_EXAMPLE else f"{text[: _LONGEST_EXAMPLE - 1]}…"


def _table(*headings: str) -> Table:
    table = Table()
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


# -- words -----------------------------------------------------------------------------------------------------


def _in_words(ends: Mapping[str, int]) -> dict[str, int]:
    return {end_words(name): count for name, count in ends.items()}


def _of(part: int, whole: int) -> str:
    return f" ({percent(part / whole, 0)})" if whole else ""
