"""An agent at work: it takes steps, searches, and is in another state.

Decides the turns, the step budget, the repair turn, what a failed step is and how answers are scored. Its protocol
(`protocols`) says what a state shows and what a reply means. Uses one `ChatModel` and one `Retriever`; knows nothing of
trees, files or other questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

from preference import ActionType, AgentAction, Message, exact_match, f1_score
from preference.answer_scores import in_language
from preference.export.sanitize import plain_text
from preference.records import ParseFailure, PassageRef
from reasonrag.agent.model_calls import Judgement, ModelCaller, Spending, first_reading
from reasonrag.agent.parsing import ParsedReply, ParseError
from reasonrag.agent.prompting import Prompts, as_thought, render_variation
from reasonrag.agent.protocols.known import PROTOCOLS, AgentProtocol, steps_of_hops
from reasonrag.agent.reader import Readings
from reasonrag.agent.state import Observation, State
from reasonrag.agent.support import grounded_by_evidence, is_grounded, is_supported
from reasonrag.concurrency import together
from reasonrag.data.multiple_choice import in_words
from reasonrag.data.questions import Question
from reasonrag.errors import ModelError, RetrievalError
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion, Sampling
from reasonrag.llm.endpoint.endings import ending_of
from reasonrag.llm.reasoning import without_reasoning
from reasonrag.retrieval.passage_length import in_order
from reasonrag.retrieval.retriever import Retriever, corpus_language
from reasonrag.retrieval.settings import BEST_FIRST, PassageOrder

HOTTER = 0.3
"""Temperature increase per attempt at a different step."""
HOTTEST = 2.0
_NOTHING = Completion(text="", finish_reason="")


class AgentStep(NamedTuple):
    """One step taken in a state, parsed or failed, scored if it ends the path.

    f1, em: of an end, if the question has gold answers.
    reasoning: what the model reasoned before its response; shown to no other turn.
    judged: an answer's value by a judge or a function, if one was asked.
    sampled_by: the model, if it is not the one that proposes steps.
    sampled_with: the messages really sent, if the reply is not a plain sample of the state's prompt: it came from the
        repair turn, or was drawn at a higher temperature (sampled_temperature), or with its siblings shown.
    """

    state: State
    prompt: tuple[Message, ...]
    response: str
    action_type: ActionType | None
    content: str | None
    terminal: bool
    parse_error: ParseFailure | None = None
    repaired: bool = False
    calls_left_out: int = 0
    reasoning: str = ""
    sampled_by: str | None = None
    sampled_with: tuple[Message, ...] | None = None
    sampled_temperature: float | None = None
    f1: float | None = None
    em: float | None = None
    judged: Judgement[float] | None = None
    grounded: bool | None = None
    in_evidence: bool | None = None

    @property
    def observation(self) -> str | None:
        """What a reader said of the passages, where the state shows that in their place."""
        seen = self.state.observed[-1] if self.state.observed else None
        return seen.said if seen else None

    @property
    def plain(self) -> bool:
        return self.sampled_with is None

    @property
    def calls(self) -> int:
        """Completions used: one, or two with the repair turn."""
        repair_failed = self.parse_error is not None and self.parse_error.repair is not None
        return 2 if self.repaired or repair_failed else 1

    @property
    def passage_refs(self) -> list[PassageRef] | None:
        if not self.state.reads:
            return None
        gold = self.state.question.gold
        return [each.reference(not_gold=gold is not None and gold.only_by_title(each)) for each in self.state.passages]


@dataclass(frozen=True)
class Agent:
    """The policy (model, retriever, prompts, sampling) and what it has spent. Keeps no steps.

    repair: whether an unreadable reply gets a repair turn; without it, it is a failed step at once.
    reader: asks the model that reads, if it is not the agent's own.
    steps_by_hops: whether a question whose hops are known has the steps for one search more than hops, if these are
        more than `max_steps`. must_answer: whether the last step concludes; else a path may end without an answer.
    """

    model: ChatModel
    retriever: Retriever
    prompts: Prompts
    sampling: Sampling
    top_k: int
    max_steps: int
    seed: int
    spending: Spending = field(default_factory=Spending)
    passage_order: PassageOrder = BEST_FIRST
    repair: bool = True
    steps_by_hops: bool = False
    readings: Readings = field(default_factory=Readings)
    reader: ModelCaller | None = None
    must_answer: bool = True

    def anew(self, model: ChatModel, reader: ChatModel | None = None) -> Agent:
        """The agent with a model, and a reader if it has one, for a question of which nothing is read and spent yet."""
        reads = self.reader and replace(self.reader, model=reader or self.reader.model, spending=Spending())
        return replace(self, model=model, spending=Spending(), readings=Readings(), reader=reads)

    @cached_property
    def protocol(self) -> AgentProtocol:
        return PROTOCOLS[self.prompts.agent]

    @cached_property
    def language(self) -> str | None:
        """Of the corpus, which says how numbers are read."""
        return corpus_language(self.retriever)

    @cached_property
    def caller(self) -> ModelCaller:
        """Sends requests to the agent's model and records their usage."""
        return ModelCaller(self.model, self.prompts, self.sampling, self.seed, self.spending, repair=self.repair)

    def most_steps(self, question: Question) -> int:
        """Most steps of an answer, the conclusion included."""
        if self.steps_by_hops and question.hops:
            return steps_of_hops(question.hops, least=self.max_steps, agent=self.prompts.agent)
        return self.max_steps

    def start(self, question: Question) -> State:
        return State(question, self._turn(question, None, layer=0)[0], layer=0)

    def _turn(self, question: Question, action_type: ActionType | None, *, layer: int) -> tuple[AgentAction, bool]:
        """What the next turn does, and whether it is preceded by a search. An agent whose passages are read by a turn
        of their own is shown none before it concludes. action_type: of the step before, None at the start."""
        last, at_once = self.must_answer and layer + 1 == self.most_steps(question), self.protocol.reads_at_once
        searches = action_type == "query" and (at_once or not last)
        return "conclude" if last else "read" if searches and not at_once else "think", searches

    async def next_state(self, step: AgentStep, said: str | None = None) -> State:
        """The state a step leads to; a query is searched here. said: by the reader, if that is known. Raises its
        ModelError, and RetrievalError, but for a query that is rejected alone: its state has ended."""
        before = step.state
        layer = before.layer + 1
        thoughts = (*before.thoughts, step.response)
        evidence = before.evidence + ((step.content or "",) if step.action_type == "evidence" else ())
        action, searches = self._turn(before.question, step.action_type, layer=layer)
        observed = (*before.observed, None)
        after = State(before.question, action, layer, thoughts, (), before.read, evidence, None, observed)
        if not searches:
            return after
        query = step.content or ""
        try:
            found = tuple(await self.retriever.retrieve(query, self.top_k))
        except RetrievalError as error:
            if not error.of_query:
                raise
            ended = ParseError("no_passages", str(error))
            return after._replace(ended=ended, observed=(*before.observed, Observation(query, ())))
        if self.protocol.has_reader and said is None:
            shown, by = in_order(found, self.passage_order), self.reader or self.caller
            said = await self.readings.read(by, before.question, query, shown) if found else ""
        known = {passage.id for passage in before.read}
        read = before.read + tuple(each for each in found if each.id not in known)
        return after._replace(passages=found, read=read, observed=(*before.observed, Observation(query, found, said)))

    def prompt_of(self, state: State) -> tuple[Message, ...]:
        return self.protocol.messages(self.prompts, state, self.passage_order)

    async def sample(
        self, state: State, samples: Sequence[int], *, attempt: int = 0, said: Sequence[AgentStep] = ()
    ) -> list[AgentStep]:
        """One step per sample number, all in one request. Raises ModelError, but for a prompt that is rejected alone:
        its steps have failed. The first prompt of a question is the question's.

        attempt: 0 for plain samples. n > 0: plain samples were all equivalent to `said`; each attempt raises the
            temperature, and from the second on the prompt shows `said`.
        """
        prompt = self.prompt_of(state)
        draw, sampling = _Draw(state, prompt), None
        if attempt:
            shown = [each.response for each in said] if attempt > 1 else []
            messages = render_variation(self.prompts, prompt, said=shown) if shown else prompt
            hotter = min(HOTTEST, self.sampling.temperature + HOTTER * attempt)
            sampling = self.sampling.model_copy(update={"temperature": hotter})
            draw = _Draw(state, prompt, messages, hotter)
        if state.ended:
            return [_failed_step(draw, _NOTHING, state.ended) for _ in samples]
        sent, stop = draw.sampled_with or prompt, self.protocol.stops(state)
        unseen = state.thoughts if self.protocol.reads_at_once else ()
        request = self.caller.request(state.question.id, sent, samples, stop, sampling, unseen=unseen)
        try:
            completions = await self.caller.complete(request)
        except ModelError as error:
            if not error.of_prompt or not state.layer:
                raise
            return [_failed_step(draw, _NOTHING, ParseError("rejected", str(error))) for _ in samples]
        read = partial(self._read, state)
        first = [first_reading(request, each, read) for each in completions]
        readable = [each for each in first if not isinstance(each, ParseError)]
        if len(readable) == len(first):  # as mostly: nothing is waited for
            return [self._parsed(draw, *each) for each in zip(readable, completions, strict=True)]
        return await together(*(self._as_step(draw, request, *each) for each in zip(completions, samples, strict=True)))

    async def continue_from(self, state: State, samples: Sequence[int]) -> list[list[AgentStep]]:
        """One real continuation to an answer per sample number; their first steps share a request."""
        firsts = await self.sample(state, samples)
        return await together(*(self._finish(first, sample) for first, sample in zip(firsts, samples, strict=True)))

    async def _finish(self, step: AgentStep, sample: int) -> list[AgentStep]:
        path = [step]
        while not path[-1].terminal:
            path += await self.sample(await self.next_state(path[-1]), [sample])
        return path

    async def _as_step(self, draw: _Draw, request: ChatRequest, completion: Completion, sample: int) -> AgentStep:
        """The step of a reply; a reply that does not parse gets one repair turn, then is a failed step."""
        found = await self.caller.read(request, completion, partial(self._read, draw.state), sample=sample)
        if isinstance(found.content, ParseError):
            return _failed_step(draw, completion, found.content, found.unrepaired)
        if found.repaired:
            draw = draw._replace(sampled_with=found.messages)
        return self._parsed(draw, found.content, found.completion, repaired=found.repaired)

    def step_of(self, state: State, reply: str) -> AgentStep:
        """The step of a whole reply from outside, without a repair turn."""
        said = without_reasoning(Completion(text=reply, finish_reason="stop"))
        parsed, prompt = self._read(state, said), self.prompt_of(state)
        draw = _Draw(state, prompt)
        return _failed_step(draw, said, parsed) if isinstance(parsed, ParseError) else self._parsed(draw, parsed, said)

    def _read(self, state: State, said: Completion) -> ParsedReply | ParseError:
        return self.protocol.parse(plain_text(said.text), state, ending_of(said))

    def _parsed(self, draw: _Draw, parsed: ParsedReply, reply: Completion, *, repaired: bool = False) -> AgentStep:
        state, ends = draw.state, parsed.action_type == "answer"
        question, golden_answers, told = state.question.question, state.question.golden_answers, state.evidence
        if self.protocol.reads_at_once:  # nothing is reported, so answers are held against what was read
            told = tuple(f"{each.title}. {each.text}" for each in state.read)
        said, held = parsed.content, None
        if ends:
            said = in_words(question, parsed.content)
            [answer], evidence, golds = (
                [in_language(each, self.language) for each in texts] for texts in ([said], told, golden_answers)
            )
            held = is_supported(question, answer, evidence, golds, state.read)
        grounded = is_grounded(parsed.action_type, said, state.read)
        spent = not ends and state.layer + 1 >= self.most_steps(state.question)
        nothing = 0.0 if spent and golden_answers else None
        return AgentStep(
            **draw._asdict(),
            response=as_thought(parsed.response),
            action_type=parsed.action_type,
            content=parsed.content,
            terminal=ends or spent,
            repaired=repaired,
            calls_left_out=parsed.calls_left_out,
            reasoning=plain_text(reply.reasoning),
            f1=f1_score(said, golden_answers) if ends and golden_answers else nothing,
            em=exact_match(said, golden_answers) if ends and golden_answers else nothing,
            grounded=grounded_by_evidence(told, state.read, grounded=grounded, held=held),
            in_evidence=held,
        )


class _Draw(NamedTuple):
    """What was sent for a step, with the names that `AgentStep` has for it."""

    state: State
    prompt: tuple[Message, ...]
    sampled_with: tuple[Message, ...] | None = None
    sampled_temperature: float | None = None


def _failed_step(draw: _Draw, reply: Completion, error: ParseError, repair: Completion | None = None) -> AgentStep:
    """A step for a reply that did not parse: terminal, value 0, kept with its text and cause."""
    nothing = 0.0 if draw.state.question.golden_answers else None
    return AgentStep(
        **draw._asdict(),
        response=plain_text(reply.text),
        reasoning=plain_text(reply.reasoning),
        action_type=None,
        content=None,
        terminal=True,
        parse_error=ParseFailure(
            cause=error.cause, detail=error.detail, repair=None if repair is None else plain_text(repair.text)
        ),
        f1=nothing,
        em=nothing,
    )
