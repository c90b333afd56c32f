"""Labels by a judge: a model sees the steps that were taken in a state and picks a better one, a worse one, or none.

Decides which steps a judge is shown and in which order, and what becomes of missing judgements. Answers are journaled
and priced like those of a run. The method is ProRAG's (arXiv 2601.21912), whose judge filters siblings; prompt and
order are ours. Of a run of its own recipe the judge sees what its does: steps visited often enough, with their values
and visits. What a pick does to a state's pairs is decided in `preference.labelling`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

import orjson
from pydantic import BaseModel

from preference import Message, StateRecord, StepRecord
from preference.candidate_records import read_lines
from preference.export.private_files import atomic_replacement
from preference.labelling import distinct_steps, with_judge_label
from preference.margin_and_confidence import TOLERANCE
from preference.published.pair_rules import is_judged_by_visits, visited_enough
from preference.statistics import Share, share_of
from reasonrag.agent.model_calls import Judgement, ModelCaller
from reasonrag.agent.parsing import parse_pick
from reasonrag.agent.prompting import Prompts, render_pick
from reasonrag.errors import ModelError
from reasonrag.llm.chat import ChatModel, sample_seed
from reasonrag.llm.expected_usage import ExpectedUsage
from reasonrag.llm.journal import JournaledModel
from reasonrag.llm.model_spec import LazyModel, ModelSpec, check_prices
from reasonrag.llm.reasoning import too_little_room
from reasonrag.progress import Watcher, warn_all
from reasonrag.rendering import counted, dollars_or_unknown
from reasonrag.run.engine import Asked, Budget, Role, claimed, open_run
from reasonrag.settings import EffortName

_JUDGE = "judge"
JUDGING = "judging"
"""Folder of the journal and of the failures, below the data set."""
_SHORT_REPLY_TOKENS = 5
"""Length of a judgement that is only the pick."""
_STOP = ("</pick>",)


class Judging(BaseModel):
    """Result and cost of judging the states of a data set."""

    model: str
    gold: bool
    """Whether it was shown golden answers."""
    seed: int
    temperature: float = 0.0
    states: int
    """Number of states with at least two different steps."""
    picked: int
    none: int
    """States in which the judge picked neither a better nor a worse step."""
    unreadable: int
    """Judgements that were unreadable even after the repair turn; they give no label."""
    given_up: int
    """States whose judgement failed; the same command asks again."""
    agrees_with_values: Share
    """Share of the picks that agree with the steps' values, among those whose values differ."""
    calls: int
    session_calls: int
    cost_usd: float | None
    refused_parameters: dict[str, list[str]] = {}
    """Request parameters that its endpoint refused in the last session, by name of the model."""

    def rows(self) -> Iterator[tuple[str, object]]:
        said = f"{self.picked:,} with a preference, {self.none:,} without, {self.unreadable:,} unreadable"
        lost = f", {self.given_up:,} failed (the same command retries them)" if self.given_up else ""
        yield f"judged by {self.model}", f"{counted(self.states, 'state')}: {said}{lost}"
        yield "agreement with rewards", self.agrees_with_values
        asked = f"{counted(self.calls, 'completion')}, {self.session_calls:,} new"
        yield "cost of judging", f"{dollars_or_unknown(self.cost_usd)}, {asked}"


@dataclass(frozen=True)
class StateJudge:
    """A judge of states, and what it is shown.

    gold: whether that is the golden answers, too. seed: of the order of the steps. budget: of all its judgements.
    """

    model: ModelSpec
    prompts: Prompts
    gold: bool
    seed: int
    budget: Budget

    def states(self, candidates: Path) -> Iterator[tuple[int, StateRecord, list[StepRecord]]]:
        """Position, state and shown steps, of every state with at least two different steps."""
        for position, state in enumerate(read_lines(candidates, StateRecord)):
            shown = self.shown(state)
            if len(shown) > 1:
                yield position, state, shown

    def shown(self, state: StateRecord) -> list[StepRecord]:
        """The steps in the order shown to the judge, drawn by the seed because judges have a position bias."""
        steps = distinct_steps(state)
        if is_judged_by_visits(state):
            steps = [step for step in steps if visited_enough(state, step)]
        lots = [sample_seed(self.seed, state.question_id, state.prompt, number) for number in range(len(steps))]
        return [steps[number] for number in sorted(range(len(steps)), key=lots.__getitem__)]

    def messages(self, state: StateRecord, shown: Sequence[StepRecord]) -> tuple[Message, ...]:
        golden_answers = state.golden_answers if self.gold else ()
        said = [step.response + (_of_search(step) if is_judged_by_visits(state) else "") for step in shown]
        return render_pick(self.prompts, state.prompt, candidates=said, golden_answers=golden_answers)


async def label_by_judge(
    candidates: Path, out: Path, judge: StateJudge, chat_model: ChatModel | None, watcher: Watcher
) -> Judging:
    """Have every state of `candidates` judged, and write the labels there; the journal is that of the data set `out`.

    chat_model: asked instead of opening the judge's. Raises InputError where the judge cannot be asked, RunStopped
    where a cap or a lost endpoint ended it, KeyboardInterrupt where Ctrl-C did: the candidates are then as they were,
    answers are kept, and the same call goes on.
    """
    check_prices(watcher.say, judge.model, capped=judge.budget.caps.cost is not None)
    place, asked = out / JUDGING, judge
    async with AsyncExitStack() as opened:
        opened.enter_context(claimed(place, flag="--out"))
        opens = LazyModel(judge.model, opened, watcher.say, chat_model)
        roles = {_JUDGE: Role(judge.model, opens)}
        run = await opened.enter_async_context(open_run(place, roles, watcher, judge.budget))
        if judge.model.settles_effort:
            begun = _begun(judge, candidates, run.models.main) if run.journal.questions else None
            opens.spec = await (begun or judge.model).settled(chat_model if begun else await opens())
            asked = replace(judge, model=opens.spec)
            run.ask_by(_JUDGE, opens.spec)
        work = _Judgements(asked, candidates)
        await run.complete(work, work)
        warn_all(too_little_room(work.only_reasoning, max_tokens=asked.model.sampling.max_tokens), watcher)
        picks, agreement = _write_labels(candidates, asked, work)
    verdicts = [work.verdicts[each] for each in work.asked.values() if each in work.verdicts]
    return Judging(
        model=asked.model.name,
        gold=asked.gold,
        seed=asked.seed,
        temperature=asked.model.sampling.temperature,
        states=len(work.asked),
        picked=picks,
        none=verdicts.count("none"),
        unreadable=verdicts.count(None),
        given_up=len(work.asked) - len(verdicts),
        agrees_with_values=agreement,
        calls=run.models.spent.calls,
        session_calls=run.session.tally.calls,
        cost_usd=run.models.cost,
        refused_parameters=run.refused,
    )


def _begun(judge: StateJudge, candidates: Path, recorded: JournaledModel) -> ModelSpec | None:
    """The judge's model with the reasoning effort of the judgements that are recorded; None if none is."""
    for spec in map(judge.model.asked, get_args(EffortName)):
        asker = ModelCaller(recorded, judge.prompts, spec.sampling, judge.seed)
        for _, state, shown in judge.states(candidates):
            if recorded.holds(asker.request(state.question_id, judge.messages(state, shown), [0], _STOP)):
                return spec
    return None


_Verdict: TypeAlias = tuple[int, int] | Literal["none"] | None
"""Positions of the better and the worse among the shown steps, from 1; None if there is no judgement."""


class _StateToJudge(NamedTuple):
    state: StateRecord
    messages: tuple[Message, ...]
    shown: int
    """Number of steps."""
    digest: bytes


class _Judgements:
    """The judge's verdicts on states, as a `Work`. Equal states are asked about once: two runs may have reached the
    same state.

    asked: digests of the messages, by position of the state. verdicts: by digest, without those that failed.
    """

    noun = "state"

    def __init__(self, judge: StateJudge, candidates: Path) -> None:
        self._judge, self._candidates = judge, candidates
        self.at_once = judge.model.limits.concurrency
        self.asked: dict[int, bytes] = {}
        self.verdicts: dict[bytes, _Verdict] = {}
        self.only_reasoning = 0
        """Judgements that the token limit cut before anything else was said."""

    def items(self) -> Iterator[_StateToJudge]:
        seen = set[bytes]()
        for position, state, shown in self._judge.states(self._candidates):
            messages = self._judge.messages(state, shown)
            shown_texts = orjson.dumps([turn.content for turn in messages])
            digest = self.asked[position] = hashlib.sha256(shown_texts).digest()
            if digest not in seen:
                seen.add(digest)
                yield _StateToJudge(state, messages, len(shown), digest)

    def question_of(self, item: _StateToJudge) -> str:
        return item.state.question_id

    async def do(self, item: _StateToJudge, asked: Asked) -> None:
        state, judge = item.state, self._judge
        where = {"question_id": state.question_id, "state_id": state.state_id}
        caller = ModelCaller(asked.models[_JUDGE], judge.prompts, judge.model.sampling, judge.seed)
        try:
            judgement: Judgement[tuple[int, int] | Literal["none"]] = await caller.judgement(
                state.question_id,
                item.messages,
                0,
                tag="pick",
                wanted=f"two different numbers from 1 to {item.shown}, the better candidate first, or none",
                read=partial(parse_pick, candidates=item.shown),
            )
        except ModelError as error:
            asked.failure(error, "state", where)
            return
        if judgement.unreadable is not None:
            cause = judgement.cause or "unreadable"
            self.only_reasoning += cause == "reasoning_cut"
            asked.note("judgement", **where, cause=cause, message=judgement.unreadable)
        self.verdicts[item.digest] = judgement.value

    def described(self, count: int) -> str:
        return counted(count, self.noun)

    async def expected(self, owed: Iterable[_StateToJudge], *_: object, **__: object) -> list[ExpectedUsage]:
        prompts = [each.messages for each in owed]
        return [ExpectedUsage.of_replies(prompts, lines=len(prompts), shortest=_SHORT_REPLY_TOKENS)]


def _of_search(step: StepRecord) -> str:
    """What ProRAG's judge is told of a step beside its text."""
    value = "unknown" if step.value is None else f"{step.value:.2f}"
    return f" [search: mean value {value}, visits {step.visits}]"


def _write_labels(candidates: Path, judge: StateJudge, work: _Judgements) -> tuple[int, Share]:
    """Write the labels into the candidates; returns the number of picks, and how often values agree with them."""
    margins = list[float]()
    with atomic_replacement(candidates) as file:
        for position, state in enumerate(read_lines(candidates, StateRecord)):
            verdict, pick = work.verdicts.get(work.asked.get(position, b"")), None
            if isinstance(verdict, tuple):
                shown = judge.shown(state)
                pick = shown[verdict[0] - 1].id, shown[verdict[1] - 1].id
            labelled = with_judge_label(state, pick)
            file.write(labelled.to_line())
            margins += [pair.margin or 0.0 for pair in labelled.pairs if pair.label == "judge"]
    decided = [each > 0 for each in margins if abs(each) > TOLERANCE]
    return len(margins), share_of(sum(decided), len(decided))
