"""The summary of a run: the content of `summary.json`, counted from its records."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mcts.recipe import JUDGED_OUTCOMES
from preference import FinalScore, RolloutRecord, Usage
from preference.best_path import ends_of
from preference.candidate_records import is_training_split
from preference.export.summary import SUMMARY
from preference.records import OF_THE_STATE, AbsentIfNone, shared_fields
from reasonrag.agent.outcomes import OF_GOLDEN_ANSWERS, answers_rehearsed, judge_agrees, poor_judge
from reasonrag.errors import CapReached, InputError, RunStopped
from reasonrag.exploration.degeneracy import SignCounts, observed_signs
from reasonrag.files import FAILURES, ROLLOUTS, read_record
from reasonrag.llm.endpoint.prompt_window import CUT_WARNING, recorded_cut
from reasonrag.llm.reasoning import too_little_room
from reasonrag.ranks import RANKS, whole_of
from reasonrag.rendering import (
    Line,
    Part,
    Shown,
    Table,
    counted,
    counts_text,
    dollars_or_unknown,
    next_command,
    tokens_text,
    warned,
    written,
)
from reasonrag.run_config import refused_by_any, versions

UNREADABLE_JUDGEMENTS = {"score": "no_score", "rank": "no_ranking", "answer": "no_answer_score"}
"""Kind of an unreadable judgement -> the cause it is counted under."""
MANY_CUT = 0.1
"""Share of the replies; where the token limit cut more, a warning says so."""
AGAINST = {
    "withheld": "leave out what the content filter dislikes, or have the filter changed",
    "too_long": "lower --top-k or --max-steps, or give the model a larger context window",
    "rejected": "change what the endpoint objects to, as `parse_error` of the step says",
    "no_passages": "change what the retriever objects to, as `parse_error` of the step says",
    "cut_off": "raise --max-reply-tokens",
    "reasoning_cut": "raise --max-reply-tokens, or have less reasoning",
}
"""Cause of a state that ended, or of a cut reply -> what helps."""
HELD_OUT = (
    "the questions are from the {} split: keep data made from them out of training, or never evaluate on that split"
)
FOUND_NOTHING = 0.1
"""Share of the searches; where more found nothing, a warning says so."""


class StopReason(BaseModel):
    """Why the last session ended before all questions were done."""

    cause: str
    message: str
    raise_cap: dict[str, str] = {}
    """The flag and a value that lets the run continue, if a cap or degenerate trees stopped it."""
    instead: str = ""
    """The command that goes on, where it is not the same one again."""

    @classmethod
    def of(cls, stopped: RunStopped, run: Path | None = None) -> StopReason:
        """run: the directory that was explored, perhaps a rank's, whose part of a cap is not raised."""
        raised, message, instead = stopped.raised or {}, str(stopped), ""
        if isinstance(stopped, CapReached) and run and (whole := whole_of(run)):
            raised, instead = {}, f"reasonrag merge {shlex.quote(str(whole))}"
            message += ". It was this rank's part; when all have ended, merge says what is left of the cap"
        return cls(cause=stopped.cause, message=message, raise_cap=raised, instead=instead)


class RunFacts(BaseModel):
    """What a run explores, and with what, and what only its last session knows."""

    run: str
    config_hash: str
    recipe: str
    outcome: str
    """The answer quality that search and labels use."""
    reward: str
    """The rule behind the labels."""
    model: str
    value_model: str | None
    """The model that continued the teacher's proposals, if not the teacher."""
    agent: AbsentIfNone[str] = None
    reader: str | None = None
    """The model that read for an agent with a reader, if not the teacher."""
    dataset: str
    split: str
    seed: int
    max_reply_tokens: int
    """Maximum length of a completion, reasoning included."""
    questions: int
    """Requested number: the data set's, or --limit."""
    cost_usd: float | None
    """Cost of everything delivered to the run, in all sessions; null without a price."""
    refused_parameters: dict[str, list[str]] = {}
    """Request parameters that an endpoint refused, by name of the model: its answers came without them; and the length
    from which it cut prompts."""
    session_questions: int
    """Explored in the last session."""
    session_seconds: float
    session_failed_calls: int
    """Failed attempts, most of which succeeded on a retry; see failures.jsonl."""
    session_cached_calls: int
    """Completions from the journal, paid by earlier sessions."""
    stopped: StopReason | None
    """Null if the session finished."""


class RunSummary(RunFacts, Shown):
    """The content of a run directory and of its last session; the content of `summary.json`."""

    done: int
    failed: int
    failures_by_cause: dict[str, int]
    nodes: int
    continuations: int
    """Real continuations from the root to an answer, or to a failed step, which counts as 0; with a value model, its
    own continuations from where it took over."""
    mean_f1: float | None
    mean_em: float | None
    """Means over the continuations of questions with gold answers; null without any."""
    mean_outcome: float | None
    """Mean of the answer quality that search and labels use, over all questions."""
    judge_agrees: AbsentIfNone[dict[str, int]] = None
    """Where a judge scores answers: those to questions with gold answers of which these say the same (`same`) and
    something else (`other`); from half of its scale on the judge calls an answer right."""
    questions_mixed: int
    """Questions whose outcomes are neither all right nor all wrong: those that can give a training signal."""
    degenerate: dict[str, int]
    """Questions that show a sign of degeneracy, by sign (`reasonrag.exploration.degeneracy`)."""
    parse_failures_by_cause: dict[str, int]
    searches: int = 0
    empty_searches: int = 0
    """Those that found nothing."""
    repair_turns: int
    calls: int
    requests: int
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0
    """Usage of the answers in rollouts.jsonl."""
    warnings: list[str]
    versions: dict[str, str]

    def shown(self) -> Iterator[Part]:
        models = {"agent": self.agent, "teacher": self.model, "values of": self.value_model, "reader": self.reader}
        named = "".join(f"  {what} {name}" for what, name in models.items() if name)
        yield from warned(self.warnings)
        yield Table(f"{self.dataset}/{self.split}  recipe {self.recipe}{named}", self._rows())
        run = Path(self.run)
        whole = (run / ROLLOUTS).exists()
        yield Line(
            f"wrote {run / ROLLOUTS}" if whole else f"wrote {run / RANKS}, which are merged when all are complete"
        )
        if self.failed:
            passing = self.failures_by_cause.keys() - OF_THE_STATE
            retried = "; the same command retries those that may pass" if passing else ""
            yield Line(f"failure causes: {run / FAILURES}{retried}")
        if self.stopped:
            yield f"stopped: {self.stopped.message}"
        elif of_a_rank := whole_of(run):
            yield next_command("merge", of_a_rank)
        elif self.done:
            yield next_command("pairs", run, "--out", f"data/{run.name}")

    def _rows(self) -> Iterator[tuple[str, object]]:
        finished = " of finished trees" if self.stopped else ""
        cached = f", {self.session_cached_calls:,} of them from the journal" if self.session_cached_calls else ""
        yield "questions", f"{self.done:,} done, {self.failed:,} failed, {self.questions:,} requested"
        yield "failure causes", self.failures_by_cause
        yield "steps in trees", self.nodes - self.done
        yield "continuations", self.continuations or "none from the root"
        yield "mean F1 / EM", f"{written(self.mean_f1)} / {written(self.mean_em)}"
        if self.outcome not in OF_GOLDEN_ANSWERS:
            yield f"mean {self.outcome} outcome", self.mean_outcome
        if self.judge_agrees:
            same, of = self.judge_agrees["same"], sum(self.judge_agrees.values())
            agrees = f"on {counted(same, 'answer')} of {of:,} in the trees" if of else "not known: there are none"
            yield "judge agrees with gold answers", agrees
        yield "mixed outcomes", counted(self.questions_mixed, "question")
        yield "degenerate", self.degenerate
        yield "unreadable replies", self.parse_failures_by_cause
        yield "completions", f"{self.calls:,} in {counted(self.requests, 'request')}{finished}{cached}"
        yield "tokens", tokens_text(self, behind=finished)
        yield "cost of the run", dollars_or_unknown(self.cost_usd)
        for name, refused in self.refused_parameters.items():
            yield f"refused by {name}", refused
        session = f"{counted(self.session_questions, 'question')} in {self.session_seconds:,.1f} s"
        yield "this session", f"{session}, {counted(self.session_failed_calls, 'failed attempt')}"


def count_run(rollouts: Iterable[RolloutRecord], facts: RunFacts) -> RunSummary:
    """The summary of a run: these facts, and counts of its records."""
    counts = RunCounts()
    for rollout in rollouts:
        counts.add(rollout)
    judged, agreed, contradicted = facts.outcome in JUDGED_OUTCOMES, counts.agreements[True], counts.agreements[False]
    known = shared_fields(counts.usage, RunSummary) | shared_fields(counts, RunSummary) | counts.of_trees
    return RunSummary(
        **known | shared_fields(facts, RunFacts),
        failed=len(counts.failures),
        failures_by_cause=dict(Counter(counts.failures.values()).most_common()),
        judge_agrees={"same": agreed, "other": contradicted} if judged else None,
        warnings=answers_rehearsed(facts.model, facts.outcome, reward=facts.reward)
        + (poor_judge(facts.model, agreed, agreed + contradicted) if judged else [])
        + ([] if is_training_split(facts.split) else [HELD_OUT.format(facts.split)])
        + counts.warnings(facts.max_reply_tokens, cut_from=recorded_cut(facts.refused_parameters)),
        versions=versions(),
    )


def added_up(
    run: Path,
    folders: Sequence[Path],
    *,
    questions: int,
    rollouts: Iterable[RolloutRecord],
    stopped: StopReason | None,
    refused: dict[str, list[str]] | None = None,
) -> RunSummary:
    """Counts of these rollouts, with the sums of the ranks' last sessions, but for ranks that were killed before they
    wrote any. refused: by endpoints of all ranks, where it is known. Raises InputError where no rank is left."""
    advice = "Restore it, or run the rank again"
    parts = [found for each in folders if (found := read_record(each / SUMMARY, RunSummary, advice))]
    if not parts:
        raise InputError(f"no rank of {run} has a {SUMMARY}; run them again")
    costs = [each.cost_usd for each in parts]
    known = {
        "run": str(run),
        "questions": questions,
        "cost_usd": None if None in costs else sum(filter(None, costs)),
        "refused_parameters": refused_by_any([e.refused_parameters for e in parts]) if refused is None else refused,
        "session_seconds": max(each.session_seconds for each in parts),
        "stopped": stopped,
    }
    summed = ("session_questions", "session_failed_calls", "session_cached_calls")
    known |= {name: sum(getattr(each, name) for each in parts) for name in summed}
    return count_run(rollouts, parts[0].model_copy(update=known))


@dataclass
class RunCounts:
    """Sums over the records of a run."""

    done: int = 0
    nodes: int = 0
    continuations: int = 0
    with_gold: int = 0
    """Continuations of questions with gold answers."""
    quality: float = 0.0
    f1: float = 0.0
    em: float = 0.0
    agreements: Counter[bool | None] = field(default_factory=Counter)
    """Answers by what `agent.outcomes.judge_agrees` says of them."""
    questions_mixed: int = 0
    signs: SignCounts = field(default_factory=SignCounts)
    searches: int = 0
    empty_searches: int = 0
    usage: Usage = field(default_factory=Usage)
    """The usage of all records, those of failed questions included."""
    failures: dict[str, str] = field(default_factory=dict)
    """Cause by question; a later line of the question may hold its tree."""
    parse_failures: Counter[str] = field(default_factory=Counter)
    only_reasoning: int = 0
    """Replies, those of judges included, that the token limit cut before anything else was said."""

    def add(self, rollout: RolloutRecord) -> None:
        self.usage += rollout.usage
        if rollout.error:
            self.failures[rollout.question_id] = rollout.error.cause
            return
        self.failures.pop(rollout.question_id, None)
        self.done += 1
        self.nodes += len(rollout.nodes)
        finals = counted_ends(rollout)
        self.continuations += len(finals)
        self.with_gold += sum(each.f1 is not None for each in finals)
        self.quality += sum(each.quality for each in finals)
        self.f1 += sum(each.f1 or 0.0 for each in finals)
        self.em += sum(each.em or 0.0 for each in finals)
        for node in rollout.nodes:
            if node.action_type == "answer" and node.outcome:
                self.agreements[judge_agrees(node.outcome.value, node.content, rollout.golden_answers)] += 1
        self.questions_mixed += ends_of(rollout) == "mixed"
        self.signs.add(observed_signs(rollout))
        found = {node.parent_id: node.passages for node in rollout.nodes if node.passages is not None}
        self.searches += len(found)
        self.empty_searches += sum(not passages for passages in found.values())
        causes = unread_steps(rollout)
        self.only_reasoning += [*causes, *(each.cause for each in rollout.unreadable_judgements)].count("reasoning_cut")
        self.parse_failures.update(causes + unread_judgements(rollout))

    @property
    def of_trees(self) -> dict[str, Any]:
        """What a summary and an overview say of the trees, by their fields."""
        return {
            "continuations": self.continuations,
            "mean_f1": mean(self.f1, self.with_gold),
            "mean_em": mean(self.em, self.with_gold),
            "mean_outcome": mean(self.quality, self.continuations),
            "degenerate": self.signs.by_sign,
            "parse_failures_by_cause": dict(self.parse_failures.most_common()),
            "repair_turns": self.usage.repairs,
        }

    def warnings(self, max_tokens: int | None, *, cut_from: int | None) -> list[str]:
        """max_tokens: --max-reply-tokens, where it is known. cut_from: bytes from which prompts seem to be cut."""
        found = [f"an endpoint {CUT_WARNING.format(cut_from)}"] if cut_from else []
        if max_tokens:
            found += too_little_room(self.only_reasoning, max_tokens=max_tokens)
            cut = {each: count for each in ("cut_off", "loop") if (count := self.parse_failures[each])}
            if (many := sum(cut.values())) > MANY_CUT * (self.usage.calls - self.usage.repairs):
                teacher = ". Those that loop need a larger teacher" if "loop" in cut else ""
                replies = "1 reply" if many == 1 else f"{many:,} replies"
                advice = f"({counts_text(cut)}): raise it, in another --run{teacher}"
                found.append(f"{replies} reached --max-reply-tokens {max_tokens} {advice}")
        found += nothing_found(self.empty_searches, self.searches, "searches")
        found += states_that_ended(self.parse_failures, self.done, "which counts nowhere")
        if self.usage.bounded_requests:
            found.append(
                f"the endpoint reported no token counts, or too few, for {self.usage.bounded_requests:,} of "
                f"{self.usage.requests:,} requests; bytes are counted instead, about four times as many in English"
            )
        return [*found, *self.signs.warnings().values()]


def nothing_found(empty: int, searches: int, what: str) -> list[str]:
    if empty <= FOUND_NOTHING * searches:
        return []
    advice = "see what is found, and by which words, with: reasonrag search INDEX_OR_CORPUS QUERY"
    return [f"{empty:,} of {searches:,} {what} found nothing: {advice}"]


def states_that_ended(causes: Mapping[str, int], questions: int, so: str) -> list[str]:
    """A warning of paths that ended for a cause of their state. so: what that means."""
    ended = Counter({cause: count for cause, count in causes.items() if cause in OF_THE_STATE})
    if not ended:
        return []
    paths, helps = counted(ended.total(), "path"), AGAINST[ended.most_common(1)[0][0]]
    fact = f"{paths} of {counted(questions, 'question')} ended without a reply ({counts_text(ended)}), {so}"
    return [f"{fact}: {helps}; see docs/troubleshooting/replies.md#states-that-end"]


def unread_steps(rollout: RolloutRecord) -> list[str]:
    """Causes of replies that are no steps, in the tree and outside it."""
    errors = [each.parse_error for each in rollout.nodes] + [each.parse_error for each in rollout.failed_continuations]
    return [error.cause for error in errors if error]


def unread_judgements(rollout: RolloutRecord) -> list[str]:
    return [UNREADABLE_JUDGEMENTS[each.kind] for each in rollout.unreadable_judgements]


def mean(total: float, count: int) -> float | None:
    return total / count if count else None


def counted_ends(rollout: RolloutRecord) -> list[FinalScore]:
    """The ends of continuations, each once: those that count for the root, or all where another model took over."""
    of_the_root = rollout.nodes[0].rollouts if rollout.nodes else []
    return rollout.ends if rollout.value_usage is not None and not of_the_root else of_the_root
