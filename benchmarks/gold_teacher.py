"""A teacher over real questions that knows their gold passages, and whose steps have known values.

Prompts, parsing, passages and BM25 are real; only the words of the model come from here. A gold passage holds one
fact, its telling sentence. A think turn asks for a missing fact, well or badly, answers too early, or answers because
no fact is missing; a read turn quotes a missing fact that it is shown, or fails to. Each query finds what BM25 really
finds for it, so a good query may miss; all wordings of a question are known beforehand, the process is finite, and
dynamic programming solves it exactly. What a step is truly worth is the expected discounted F1 of the *decision*: an
answer without all facts is worth what such answers are worth on average, however lucky this one was.
Knows no search and no pairs.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import orjson

from preference import ActionType, AgentAction, Message, RolloutNode, cover_em, f1_score
from preference.candidate_records import PathStep
from preference.export.sanitize import plain_text
from reasonrag.agent.agent import AgentStep
from reasonrag.data.corpus import Corpus, Passage, scan_corpus
from reasonrag.data.questions import Question
from reasonrag.errors import ModelError
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.extraction.habits import sentences
from reasonrag.llm.extraction.parsed_prompt import ParsedPrompt, parse_prompt
from reasonrag.llm.offline import as_completions
from reasonrag.progress import PlainBuildWatcher
from reasonrag.retrieval.dense.manifest import default_index_directory
from reasonrag.retrieval.opening import IndexPlace, open_index_places
from reasonrag.retrieval.retriever import IndexRetriever
from reasonrag.retrieval.settings import RetrievalSettings

JUDGE_NOISE = 0.15
"""Standard deviation of a judge's score around the truth."""
STRAY_QUERIES, WRONG_ANSWERS = 4, 2
"""Bad queries and wrong answers that the teacher knows for a question."""
TITLES_DRAWN = 40
"""Of other passages, per question: enough that some of them share no word with the answer."""
CONTEXT_WORDS = 6
"""Of the question, in a query that adds some of them to a title."""

Shown: TypeAlias = tuple[str, str]
"""Title and text of a passage, as a prompt shows them."""

_VERDICTS = {"yes": "no", "no": "yes"}
_DISAMBIGUATION = re.compile(r"\s*\([^()]*\)$")
_PLAIN_WORD = re.compile(r"\b[a-z]{4,}\b")


@dataclass(frozen=True)
class Skill:
    """A kind of teacher.

    good: probability of a good query, and of reading a fact that is shown. right: of the golden answer once all facts
    are stated. early: that a think turn answers although facts are missing. luck: that such an answer is the golden
    one; a wrong one has an F1 of 0. weak: words of facts that are read with a probability of `weak_good`; else the
    first sentence of their passage is quoted, always in these words, so that it is the likeliest reply.
    """

    name: str
    good: float = 0.6
    right: float = 0.95
    early: float = 0.0
    luck: float = 0.0
    weak: tuple[str, ...] = ()
    weak_good: float = 0.3


@dataclass(frozen=True)
class World:
    """A data set's corpus: searched, and read by passage id."""

    retriever: IndexRetriever
    passages: dict[str, Passage]
    titles: tuple[str, ...]


def open_world(folder: Path, index_home: Path) -> World:
    """The corpus of a data set's folder; its index is built in `index_home` if it is missing. Raises InputError."""
    corpus = folder / "corpus.jsonl"
    place = IndexPlace("bm25", default_index_directory(corpus, index_home), corpus)
    retriever = open_index_places([place], RetrievalSettings(), PlainBuildWatcher(lambda _: None))
    passages = {each.id: each for each in Corpus(corpus, scan_corpus(corpus).offsets)}
    titles = {_one_line(each.title) for each in passages.values() if each.title}
    return World(retriever, passages, tuple(sorted(titles)))


@dataclass(frozen=True)
class Fact:
    """A gold passage and the sentence of it that is needed."""

    passage: Shown
    sentence: str

    @property
    def name(self) -> str:
        return _DISAMBIGUATION.sub("", self.passage[0])


@dataclass(frozen=True)
class State:
    """All that the teacher goes by. found: facts stated in evidence so far. passages: what a read turn is shown."""

    turn: AgentAction
    layer: int
    found: frozenset[int]
    passages: tuple[Shown, ...] = ()


@dataclass(frozen=True)
class Option:
    """One thing the teacher may say in a state, with its probability."""

    type: ActionType
    content: str
    chance: float

    @property
    def reply(self) -> str:
        if self.type == "query":
            return f"The evidence so far does not settle it. So the next query is <query>{self.content}</query>"
        if self.type == "answer":
            return f"So the answer is <answer>{self.content}</answer>"
        lead = "" if self.content == "None" else "Based on the query, the relevant evidence is "
        return f"{lead}<evidence>{self.content}</evidence>"


class GoldQuestion:
    """One question: its facts, what the teacher may say about it, and the value of everything.

    metadata of the question: `gold_ids` are needed; `supporting_facts` and `question_decomposition` help to find the
    telling sentences. `guesses` are the answers that a guess is made among, each as likely: its luck is then theirs,
    not the skill's. `namesakes` are titles that bad queries ask for. Raises KeyError for a gold passage that the corpus
    lacks.
    """

    def __init__(
        self, question: Question, world: World, skill: Skill, *, max_steps: int, alpha: float, top_k: int = 3
    ) -> None:
        self.question, self.skill = question, skill
        self.max_steps, self.alpha, self.top_k = max_steps, alpha, top_k
        self._world = world
        self.facts = [_fact(world.passages[each], question) for each in question.metadata["gold_ids"]]
        dice = random.Random(f"gold/{question.id}")
        gold_titles = {_one_line(fact.passage[0]) for fact in self.facts}
        drawn = [each for each in dice.sample(world.titles, TITLES_DRAWN) if each not in gold_titles]
        self._stray_queries = list(question.metadata.get("namesakes") or drawn[:STRAY_QUERIES])
        guesses = question.metadata.get("guesses") or []
        self.luck = 1 / len(guesses) if guesses else skill.luck
        self._wrong_answers = (
            [each for each in guesses if f1_score(each, question.golden_answers) == 0]
            if guesses
            else self._wrong([fact.name for fact in self.facts] + drawn[STRAY_QUERIES:])
        )
        self.options = cache(self._options)
        self._expected = cache(self._expect)

    def _wrong(self, spans: Sequence[str]) -> list[str]:
        """Answers without a word of the golden ones; the other verdict, if the golden answer is one."""
        golden = self.question.golden_answers
        verdict = _VERDICTS.get(golden[0].strip().casefold())
        if verdict:
            return [verdict]
        return [each for each in dict.fromkeys(spans) if f1_score(each, golden) == 0][:WRONG_ANSWERS]

    # -- the process ---------------------------------------------------------------------------

    def start(self) -> State:
        return State("conclude" if self.max_steps == 1 else "think", 0, frozenset())

    def state_of(self, prompt: ParsedPrompt) -> State:
        """The state that a prompt shows; a judge's: that of the turn after the reasoning."""
        found = frozenset(fact for evidence in prompt.evidence for fact in self.stated(evidence))
        layer = len(prompt.said("query")) + len(prompt.said("evidence"))
        turn: AgentAction = "read" if prompt.turn == "read" else "conclude" if prompt.turn == "conclude" else "think"
        return State(turn, layer, found, prompt.passages)

    def after(self, state: State, action_type: ActionType, content: str) -> State:
        """Where a query or an evidence leads: what the agent's `next_state` does, seen by the teacher."""
        layer = state.layer + 1
        found = state.found | self.stated(content) if action_type == "evidence" else state.found
        if layer == self.max_steps - 1:
            return State("conclude", layer, found)
        if action_type == "query":
            return State("read", layer, found, self.search(content))
        return State("think", layer, found)

    def search(self, query: str) -> tuple[Shown, ...]:
        return tuple((each.title, each.text) for each in self._world.retriever.search(query, self.top_k))

    def informed(self, state: State) -> bool:
        """Whether all facts are stated."""
        return len(state.found) == len(self.facts)

    def stated(self, evidence: str) -> frozenset[int]:
        said = _one_line(evidence)
        return frozenset(number for number, fact in enumerate(self.facts) if fact.sentence in said)

    # -- the policy ----------------------------------------------------------------------------

    def _options(self, state: State) -> tuple[Option, ...]:
        """Everything the teacher may say; chances sum to one."""
        if state.turn == "read":
            said = self._readings(state)
        elif state.turn == "conclude" or self.informed(state):
            said = self._answers(state)
        else:
            early = self.skill.early
            said = [(kind, text, chance * early) for kind, text, chance in self._answers(state)]
            said += [(kind, text, chance * (1 - early)) for kind, text, chance in self._queries(state)]
        chances: defaultdict[tuple[ActionType, str], float] = defaultdict(float)
        for kind, text, chance in said:
            chances[kind, text] += chance
        return tuple(Option(kind, text, chance) for (kind, text), chance in chances.items() if chance > 0)

    def _answers(self, state: State) -> list[tuple[ActionType, str, float]]:
        right = self.skill.right if self.informed(state) else self.luck
        wrong = self._wrong_answers
        if not wrong:
            raise ValueError(f"question {self.question.id} has no wrong answer to give")
        return [
            ("answer", self.question.golden_answers[0].strip(), right),
            *(("answer", each, (1 - right) / len(wrong)) for each in wrong),
        ]

    def _queries(self, state: State) -> list[tuple[ActionType, str, float]]:
        good, wordings, strays = self.skill.good, self._wordings(state), self._stray_queries
        return [
            *(("query", each, good / len(wordings)) for each in wordings),
            *(("query", each, (1 - good) / len(strays)) for each in strays),
        ]

    def _wordings(self, state: State) -> list[str]:
        """Good queries: for each fact within reach its title, bare and with words of the question. A fact is within
        reach if the question or a stated fact names it; if none is, all are."""
        asked = self.question.question
        missing = [fact for number, fact in enumerate(self.facts) if number not in state.found]
        known = " ".join([asked, *(self.facts[number].sentence for number in sorted(state.found))]).casefold()
        targets = [fact for fact in missing if fact.name.casefold() in known] or missing
        wordings = [] if state.found else [asked]
        for fact in targets:
            context = [word for word in _PLAIN_WORD.findall(asked) if word not in fact.name.casefold()]
            wordings += [fact.passage[0], " ".join([fact.name, *context[:CONTEXT_WORDS]])]
        return list(dict.fromkeys(_one_line(each) for each in wordings))

    def _readings(self, state: State) -> list[tuple[ActionType, str, float]]:
        """A missing fact that is shown, in one of two wordings; or nothing; or the first sentence of another
        passage. Of a weak fact: the first sentence of its own passage instead."""
        missing = [fact for number, fact in enumerate(self.facts) if number not in state.found]
        shown = [fact for fact in missing if fact.passage in state.passages]
        weak = [fact for fact in shown if set(self.skill.weak) & set(fact.sentence.split())]
        good = self.skill.weak_good if weak else self.skill.good
        facts = [each for fact in shown for each in (fact.sentence, f"{fact.passage[0]}: {fact.sentence}")]
        openings = [_one_line(sentences(text)[0]) for _, text in state.passages if text]
        strays = [each for each in dict.fromkeys(openings) if each and self.stated(each) <= state.found] or ["None"]
        none, stray = ((1 - good) / 2, (1 - good) / 2) if facts else (good, 1 - good)
        if weak:
            none, stray, strays = 0.0, 1 - good, [_one_line(sentences(weak[0].passage[1])[0])]
        return [
            *(("evidence", each, good / len(facts)) for each in facts),
            ("evidence", "None", none),
            *(("evidence", each, stray / len(strays)) for each in strays),
        ]

    # -- what is true --------------------------------------------------------------------------

    def value(self, state: State) -> float:
        """Expected F1 * alpha**steps of the policy from a state on."""
        return self._expected(state, self.alpha)

    def worth(self, step: AgentStep | RolloutNode | PathStep) -> float:
        """True value of a recorded step that parsed: the expected F1 * alpha**steps of the decision."""
        before, action_type, content = self._taken(step)
        if action_type != "answer":
            return self.value(self.after(before, action_type, content))
        outcome = self._score(content) if self.informed(before) else self.luck  # a wrong guess has no F1
        return outcome * self.alpha ** (before.layer + 1)

    def prospect(self, step: AgentStep | RolloutNode | PathStep) -> float:
        """Expected F1 without discount, as a perfect judge would see it; an answer's own F1."""
        before, action_type, content = self._taken(step)
        if action_type == "answer":
            return self._score(content)
        return self._expected(self.after(before, action_type, content), 1.0)

    def rests_on_facts(self, step: AgentStep | RolloutNode | PathStep) -> bool:
        """Whether all facts were stated before the step."""
        return self.informed(self._taken(step)[0])

    def prospect_of(self, reasoning: str, *, gold: bool = True) -> float:
        """The same for some reasoning as a judge is shown it. gold: whether the judge knows the golden answers; if not,
        an answer without all facts counts as such answers do on average."""
        prompt = ParsedPrompt("judge", self.question.question, reasoning, ())
        state, said = self.state_of(prompt), {tag: prompt.said(tag) for tag in ("query", "evidence", "answer")}
        if said["answer"]:
            if not gold and not self.informed(state):
                return self.luck
            return self._score(said["answer"][-1])
        if state.layer == self.max_steps - 1:
            return self._expected(State("conclude", state.layer, state.found), 1.0)
        if len(said["query"]) > len(said["evidence"]):
            return self._expected(State("read", state.layer, state.found, self.search(said["query"][-1])), 1.0)
        return self._expected(state, 1.0)

    def _taken(self, step: AgentStep | RolloutNode | PathStep) -> tuple[State, ActionType, str]:
        if step.prompt is None or step.action_type is None or step.content is None:
            raise ValueError("only a step that parsed has a value; this one has no prompt or no content")
        return self.state_of(parse_prompt(step.prompt)), step.action_type, step.content

    def _expect(self, state: State, alpha: float) -> float:
        return sum(
            each.chance * self._score(each.content) * alpha ** (state.layer + 1)
            if each.type == "answer"
            else each.chance * self._expected(self.after(state, each.type, each.content), alpha)
            for each in self.options(state)
        )

    def _score(self, answer: str) -> float:
        return f1_score(answer, self.question.golden_answers)


class GoldTeacher:
    """A `ChatModel` whose replies are a pure function of messages and seed. Raises ModelError for other questions."""

    def __init__(self, questions: Iterable[GoldQuestion], *, name: str = "gold teacher") -> None:
        self.name = name
        self._questions = {_one_line(each.question.question): each for each in questions}

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        await asyncio.sleep(0)  # as every real model: others may run first
        prompt = parse_prompt(request.messages)
        greedy = request.sampling.temperature == 0
        dice = (_dice(request.messages, seed) for seed in request.seeds)
        return as_completions(request, [self._reply(prompt, each, greedy=greedy) for each in dice])

    async def check(self) -> None:
        """It is always there."""

    def _reply(self, prompt: ParsedPrompt, dice: random.Random, *, greedy: bool) -> str:
        """greedy: whether the likeliest is said, the first of them on a tie."""
        if prompt.turn == "judge":
            return self._judgement(prompt.question, dice)
        if prompt.turn == "rank":
            return self._ranking(prompt.question, dice)
        if prompt.turn == "pick":
            return self._pick(prompt.question, dice)
        question = self._question(prompt.question)
        options = question.options(question.state_of(prompt))
        if greedy:
            return max(options, key=lambda each: each.chance).reply
        return dice.choices(options, [each.chance for each in options])[0].reply

    def _judgement(self, shown: str, dice: random.Random) -> str:
        """A score around the truth."""
        asked, _, rest = shown.partition("\nCorrect answer: ")
        prospect = self._question(asked).prospect_of(rest.partition("\nReasoning: ")[2])
        score = round(100 * min(1.0, max(0.0, dice.gauss(prospect, JUDGE_NOISE))))
        return f"Judged by where it leads. So the score is <score>{score}</score>"

    def _ranking(self, shown: str, dice: random.Random) -> str:
        """Candidates ordered by scores around the truth."""
        scores = self._compared(shown, dice)
        ranking = " ".join(str(place + 1) for place in sorted(range(len(scores)), key=lambda place: -scores[place]))
        return f"Judged by where they lead. So the ranking is <ranking>{ranking}</ranking>"

    def _pick(self, shown: str, dice: random.Random) -> str:
        """The best and the worst candidate by such scores; none where they are nearer than the error of a score."""
        scores = self._compared(shown, dice)
        best, worst = (choose(range(len(scores)), key=scores.__getitem__) for choose in (max, min))
        picked = f"{best + 1} {worst + 1}" if scores[best] - scores[worst] > JUDGE_NOISE else "none"
        return f"Judged by where they lead. So the pick is <pick>{picked}</pick>"

    def _compared(self, shown: str, dice: random.Random) -> list[float]:
        """What a judge thinks of numbered candidates."""
        lines = shown.split("\n")
        question = self._question(lines[0])
        reasoning = next((each for each in lines if each.startswith("Reasoning: ")), "").removeprefix("Reasoning: ")
        gold = any(each.startswith("Correct answer: ") for each in lines)
        candidates = [each.partition(": ")[2] for each in lines if each.startswith("Candidate ")]
        return [
            dice.gauss(question.prospect_of(f"{reasoning} {each}".strip(), gold=gold), JUDGE_NOISE)
            for each in candidates
        ]

    def _question(self, asked: str) -> GoldQuestion:
        try:
            return self._questions[_one_line(asked)]
        except KeyError as error:
            raise ModelError(
                f"{self.name} knows no gold passages of the question {asked!r}; give it this GoldQuestion at the start",
                cause="unknown_question",
            ) from error


def _dice(messages: Sequence[Message], seed: int) -> random.Random:
    identity = [[(each.role, each.content) for each in messages], seed]
    return random.Random(hashlib.sha256(orjson.dumps(identity)).digest())


def _fact(passage: Passage, question: Question) -> Fact:
    """A gold passage's telling sentence: the first that holds the answer (MuSiQue: of its own hop), else the
    supporting one, else the first."""
    said = [each for each in map(_one_line, sentences(passage.text)) if each] or [passage.title]
    hops = question.metadata.get("question_decomposition") or []
    answers = [each["answer"] for each in hops if each["support_id"] == passage.id] or question.golden_answers
    answers = [each for each in answers if each.strip().casefold() not in _VERDICTS]
    holding = (each for each in said if cover_em(each, answers))
    return Fact((passage.title, passage.text), next(holding, said[min(_supporting(passage, question), len(said) - 1)]))


def _supporting(passage: Passage, question: Question) -> int:
    """Number of the passage's first supporting sentence as the data set says; 0 where it says none."""
    facts = question.metadata.get("supporting_facts") or {"title": [], "sent_id": []}
    numbered = zip(facts["title"], facts["sent_id"], strict=True)
    return min((number for title, number in numbered if title == passage.title), default=0)


def _one_line(text: str) -> str:
    """Text as it comes back from a prompt: without what prompts take out, white space single."""
    return " ".join(plain_text(text).split())
