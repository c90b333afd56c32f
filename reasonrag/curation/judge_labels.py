"""Labels by a judge: a model sees the steps that were taken in a state and picks a better one, a worse one, or none.

Decides which steps a judge is shown and in which order, and what becomes of judgements that are missing. Answers are
journaled and priced like those of a run. Source of the way: ProRAG (arXiv 2601.21912), whose judge filters siblings;
prompt and order are ours. What a pick does to a state's pairs is decided in `preference.labelling`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import orjson
from pydantic import BaseModel

from preference import Message, StateRecord, StepRecord
from preference.candidates import read_lines
from preference.export.files import atomic_replacement
from preference.export.summary import CANDIDATES
from preference.labelling import TOLERANCE, distinct_steps, with_judge_label
from preference.statistics import Share, share_of
from reasonrag.agent.from_settings import Policy, check_prices, open_model, owned, teacher_policy
from reasonrag.agent.model_calls import Asker, Judgement
from reasonrag.agent.parsing import parse_pick
from reasonrag.agent.prompting import Prompts, load_prompts, render_pick
from reasonrag.curation.settings import PairsSettings
from reasonrag.errors import InputError, ModelError
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.files import FAILURES, JOURNAL, only_writer
from reasonrag.llm.budget import Caps, Ledger
from reasonrag.llm.chat import ChatModel, estimate_tokens, sample_seed
from reasonrag.llm.failure_log import FailureLog
from reasonrag.llm.journal import JournaledModel, open_journal
from reasonrag.llm.models import Models
from reasonrag.progress import Watcher
from reasonrag.terminal import dollars

JUDGING = "judging"
"""Folder of the journal and of the failures, below the data set."""
_REPLY_TOKENS = 80
"""Length of a usual judgement, for an estimate."""
_TEMPERATURE = 0.0
"""The likeliest judgement is wanted, not one of many."""


class Judging(BaseModel):
    """What a judge said of the states of a data set, and what that cost."""

    model: str
    gold: bool
    """Whether it was shown golden answers."""
    seed: int
    states: int
    """In which at least two different things were said."""
    picked: int
    none: int
    """States in which it saw no better and no worse step."""
    unreadable: int
    """Judgements that could not be read, also after the repair turn; no label comes of them."""
    given_up: int
    """States whose judgement was not to be had; the same command asks again."""
    agrees_with_values: Share
    """Of the picks whose two steps have different values, the share that the values order alike."""
    calls: int
    session_calls: int
    cost_usd: float | None


async def label_by_judge(
    folder: Path, settings: PairsSettings, chat_model: ChatModel | None, watcher: Watcher
) -> Judging:
    """Have every state of `candidates.jsonl` in `folder` judged, and write the labels there; the journal is that of the
    data set, `settings.out`.

    chat_model: asked instead of the one that the settings would open. Raises InputError where the judge cannot be
    asked, RunStopped where a cap or a lost endpoint ended it, KeyboardInterrupt where Ctrl-C did: the candidates are
    then as they were, answers are kept, and the same call goes on.
    """
    plan = _Plan.of(folder, settings, chat_model)
    if settings.max_cost is not None:
        check_prices(plan.policy, None)
    place = settings.out / JUDGING
    with only_writer(place, flag="--out"):
        async with AsyncExitStack() as opened:
            journal = await opened.enter_async_context(open_journal(place / JOURNAL))
            ledger = Ledger(plan.policy.price, Caps(settings.max_cost, settings.max_calls), spent=journal.delivered)
            before = ledger.spent.calls
            model = chat_model or await owned(opened, open_model(plan.generate))
            asked = JournaledModel(model, journal, name=plan.policy.name, ledger=ledger)
            failures = opened.enter_context(FailureLog(place / FAILURES))
            watcher.say(plan.describe())
            asker = Asker(asked, plan.prompts, plan.policy.sampling, settings.seed)
            verdicts = await _Round(plan, asker, failures, watcher).all_verdicts(Models(asked))
        picks, agreement = _write_labels(plan, verdicts)
    return Judging(
        model=plan.policy.name,
        gold=settings.judge_gold,
        seed=settings.seed,
        states=len(verdicts),
        picked=picks,
        none=sum(each == "none" for each in verdicts.values()),
        unreadable=sum(each is None for each in verdicts.values()) - failures.given_up.total(),
        given_up=failures.given_up.total(),
        agrees_with_values=agreement,
        calls=ledger.spent.calls,
        session_calls=ledger.spent.calls - before,
        cost_usd=ledger.cost,
    )


def describe_judging(folder: Path, settings: PairsSettings) -> str:
    """What judging the states of a data set would take, in a line. Asks nobody; raises InputError as the real one."""
    return _Plan.of(folder, settings, None).describe()


_Verdict: TypeAlias = tuple[int, int] | Literal["none"] | None
"""Places of the better and the worse of the steps that were shown, from 1 on; None where there is no judgement."""


@dataclass(frozen=True)
class _Plan:
    """What is asked of whom."""

    candidates: Path
    settings: PairsSettings
    generate: GenerateSettings
    policy: Policy
    prompts: Prompts

    @classmethod
    def of(cls, folder: Path, settings: PairsSettings, chat_model: ChatModel | None) -> _Plan:
        name = chat_model.name if chat_model else settings.model
        if name is None:
            raise InputError("--label judge needs --model, the name of the judge; offline rehearses it for nothing")
        asked = ("base_url", "concurrency", "price_in", "price_out", "seed")
        generate = GenerateSettings(
            run=folder, model=name, temperature=_TEMPERATURE, **{each: getattr(settings, each) for each in asked}
        )
        policy = teacher_policy(generate, name)
        return cls(folder / CANDIDATES, settings, generate, policy, load_prompts(settings.prompts))

    def questions(self) -> Iterator[tuple[int, StateRecord, list[StepRecord]]]:
        """Place, state and what is shown of it, of every state in which different things were said."""
        for position, state in enumerate(read_lines(self.candidates, StateRecord)):
            shown = self.shown(state)
            if len(shown) > 1:
                yield position, state, shown

    def shown(self, state: StateRecord) -> list[StepRecord]:
        """The steps in the order in which the judge sees them, one that the seed draws: judges favour places."""
        steps = distinct_steps(state)
        lots = [
            sample_seed(self.settings.seed, state.question_id, state.prompt, number) for number in range(len(steps))
        ]
        return [steps[number] for number in sorted(range(len(steps)), key=lots.__getitem__)]

    def messages(self, state: StateRecord, shown: Sequence[StepRecord]) -> tuple[Message, ...]:
        golden_answers = state.golden_answers if self.settings.judge_gold else ()
        said = [step.response for step in shown]
        return render_pick(self.prompts, state.prompt, candidates=said, golden_answers=golden_answers)

    def describe(self) -> str:
        states = prompt_tokens = 0
        for _, state, shown in self.questions():
            states += 1
            prompt_tokens += sum(estimate_tokens(turn.content) for turn in self.messages(state, shown))
        price = self.policy.price
        cost = "no price is known" if price is None else dollars(price.cost(prompt_tokens, _REPLY_TOKENS * states))
        return (
            f"{states:,} states for {self.policy.name} to judge, less what the journal has: about {states:,} replies, "
            f"{prompt_tokens:,} tokens in, {_REPLY_TOKENS * states:,} out; {cost}"
        )


class _Round:
    """Every state asked about once, so many at a time."""

    def __init__(self, plan: _Plan, asker: Asker, failures: FailureLog, watcher: Watcher) -> None:
        self._plan = plan
        self._asker = asker
        self._failures = failures
        self._watcher = watcher
        self._asked: dict[bytes, asyncio.Future[_Verdict]] = {}
        """By what was asked: two runs may have been in the same place."""
        self._verdicts: dict[int, _Verdict] = {}

    async def all_verdicts(self, models: Models) -> dict[int, _Verdict]:
        """By the place of the state. Raises RunStopped, KeyboardInterrupt when that is Ctrl-C."""
        models.begin(on_failure=self._failures.attempt, say=self._watcher.say)
        await models.check()
        waiting = iter(self._plan.questions())

        async def work() -> None:
            for position, state, shown in waiting:
                self._verdicts[position] = await self._verdict(state, self._plan.messages(state, shown), len(shown))

        await models.carry_out(
            *(work() for _ in range(self._plan.settings.concurrency)),
            say=self._watcher.say,
            how_far=lambda: f"{len(self._verdicts):,} states judged",
        )
        return self._verdicts

    async def _verdict(self, state: StateRecord, messages: tuple[Message, ...], candidates: int) -> _Verdict:
        key = hashlib.sha256(orjson.dumps([turn.content for turn in messages])).digest()
        if key in self._asked:
            return await self._asked[key]
        answer = self._asked[key] = asyncio.get_running_loop().create_future()
        verdict: _Verdict = None
        try:
            judgement: Judgement[tuple[int, int] | Literal["none"]] = await self._asker.judgement(
                state.question_id,
                messages,
                0,
                tag="pick",
                wanted=f"two different numbers from 1 to {candidates}, the better candidate first, or none",
                read=lambda reply: parse_pick(reply.text, reply.finish_reason, candidates=candidates),
            )
            verdict = judgement.value
            if judgement.unreadable is not None:
                self._failures.note("judgement", **_where(state), cause="unreadable", message=judgement.unreadable)
        except ModelError as error:
            self._failures.give_up("state", error, **_where(state))
        finally:
            if not answer.done():  # a second Ctrl-C cancels whoever waits for it, and it with them
                answer.set_result(verdict)
        return verdict


def _write_labels(plan: _Plan, verdicts: dict[int, _Verdict]) -> tuple[int, Share]:
    """The candidates as judged; how many picks there are, and how often values agree with them."""
    picks = alike = decided = 0
    with atomic_replacement(plan.candidates) as file:
        for position, state in enumerate(read_lines(plan.candidates, StateRecord)):
            verdict, pick = verdicts.get(position), None
            if isinstance(verdict, tuple):
                shown = plan.shown(state)
                pick = shown[verdict[0] - 1].id, shown[verdict[1] - 1].id
            labelled = with_judge_label(state, pick)
            file.write(labelled.to_line())
            for pair in labelled.pairs:
                picks += pair.label == "judge"
                if pair.label == "judge" and abs(pair.margin or 0.0) > TOLERANCE:
                    decided += 1
                    alike += (pair.margin or 0.0) > 0
    return picks, share_of(alike, decided)


def _where(state: StateRecord) -> dict[str, str]:
    return {"question_id": state.question_id, "state_id": state.state_id}
