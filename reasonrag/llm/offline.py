"""The offline teacher: an extractive agent that uses only its prompt, for demos, tests and dry runs.

It infers the turn from the tags in its system prompt, lets its habits propose queries, sentences and answers, and
samples among them with temperature: right often and wrong often. It has no knowledge, no network and no access to gold
answers (a judge's prompt may hold some). A reply is a pure function of messages, temperature, seed and choice.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import orjson

from preference import Message, f1_score
from reasonrag.llm.chat import ChatRequest, Completion, TokenLogprob, estimate_tokens
from reasonrag.llm.extraction import habits
from reasonrag.llm.extraction.habits import STOP_WORDS, WORD, Proposal, draw, share, stems
from reasonrag.llm.extraction.parsed_prompt import MOST_READ, ParsedPrompt, parse_prompt, tagged
from reasonrag.llm.hermes import SEARCH, call_text

NAME = "offline"
STUDENT = "offline-student"
"""Its name as a value model beside itself: a different policy, because of its sampling."""

MOST_COMPARED = 200
"""Number of gold answers or candidates that are considered."""
MOST_WORDS = 0.7
"""Share of a sentence's words that a passage must have to support it."""
LIKELY, UNLIKELY = round(math.log(0.95), 6), round(math.log(0.2), 6)
_TOKEN = re.compile(r"\s*(?:</?\w+>|\w+|[^\w\s])|\s+")
_TAGS = ("query", "evidence", "answer")
_GIVEN = re.compile(
    r"^(Correct answer|Reasoning|Answer|Candidate [0-9]+|Criterion [0-9]+|Passage [0-9]+|Sentence [0-9]+): (.*)$",
    re.MULTILINE,
)
"""A judge's inputs besides the question, by the label at the beginning of their line."""

_VALUE = re.compile(r" \[search: mean value ([0-9.]+), visits [0-9]+\]$")
_SUB_QUESTION = re.compile(r"^Sub-question [0-9]+: (.*)$", re.MULTILINE)
_STEP = re.compile(r"^Step [0-9]+, (search|report|answer): (.*)$", re.MULTILINE)
_LEADS = {
    "search": "This is still to be found out:",
    "report": "The documents say that it is",
    "answer": "Nothing is left to be found out, so it is",
}
"""What is thought of each kind of step of a warm-up row."""


def rehearsed_judge(judge: str, scores: str, flag: str) -> list[str]:
    """A warning where the judge is the offline teacher. scores: what it gives. flag: that names another judge."""
    if judge not in (NAME, STUDENT):
        return []
    said = f"the judge is {judge}, which compares words and understands none, so {scores} mean nothing"
    return [f"{said}: for a rehearsal only; {flag} names a judge whose scores count"]


class OfflineTeacher:
    """A `ChatModel` without a language model. Choices of one request differ by their position, as at an endpoint."""

    def __init__(self, *, name: str = NAME) -> None:
        self.name = name

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        await asyncio.sleep(0)  # never starves the event loop
        temperature = request.sampling.temperature
        replies = [
            reply(request.messages, temperature=temperature, seed=request.seeds[0], choice=choice)
            for choice in range(len(request.samples))
        ]
        completions = as_completions(request, replies)
        if not request.sampling.logprobs:
            return completions
        return [each.model_copy(update={"logprobs": tokens_of(request.messages, each.text)}) for each in completions]

    async def check(self) -> None:
        """Always available."""


class OfflineCritic(OfflineTeacher):
    """Scores every step 0."""

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        return as_completions(request, ["0"])


def as_completions(request: ChatRequest, replies: Sequence[str]) -> list[Completion]:
    """Replies to one request as completions, with tokens of four characters each."""
    prompt_tokens = sum(estimate_tokens(message.content) for message in request.messages)
    spent = sum(estimate_tokens(text) for text in replies)
    first = Completion(text=replies[0], finish_reason="stop", prompt_tokens=prompt_tokens, completion_tokens=spent)
    return [first, *(Completion(text=text, finish_reason="stop", requests=0) for text in replies[1:])]


def reply(messages: Sequence[Message], *, temperature: float, seed: int, choice: int) -> str:
    """The complete reply to a chat, with its closing tag."""
    identity = [[(m.role, m.content) for m in messages], seed, choice]
    dice = random.Random(hashlib.sha256(orjson.dumps(identity)).digest())
    prompt = parse_prompt(messages)
    if judged := {"judge": _score, "rank": _ranking, "pick": _pick, "support": _support}.get(prompt.turn):
        return judged(prompt, dice)
    turn = _Turn(temperature, dice)
    replies: dict[str, Callable[[ParsedPrompt], str]] = {
        "route": lambda asked: f"<route>{'one' if habits.hops(asked.question) == 1 else 'several'}</route>",
        "rephrase": lambda asked: _listed("questions", map(_as_question, _SUB_QUESTION.findall(asked.question))),
        "narrate": lambda asked: _listed(
            "steps", [f"{_LEADS[kind]} {to}" for kind, to in _STEP.findall(asked.question)]
        ),
        "write": turn.write,
        "check": lambda asked: f"<answers>\n{tagged('answer', turn.answer(turn.having_read(asked)))[0]}\n</answers>",
        "read": turn.read,
        "conclude": turn.answer,
        "answer": lambda asked: turn.answer(turn.having_read(asked)),
        "reason": lambda asked: turn.answer(turn.having_reasoned(asked)),
        "loop": turn.loop,
        "sentence": turn.sentence,
        "subquery": lambda asked: _as_steps(turn.think(asked)),
        "subanswer": lambda asked: _as_steps(turn.read(asked)),
        "act": turn.act,
        "call": lambda asked: _as_call(turn.think(turn.having_found(asked))),
        "conclude_calls": lambda asked: turn.answer(turn.having_found(asked)),
        "claim": lambda asked: turn.act(asked, claims=True),
        "settle": lambda asked: _as_json(turn.answer(turn.having_found(asked))),
        "reader": lambda asked: _answer(
            Proposal((turn.having_found(asked).said("evidence")[-1:] or ["None"])[0], 0.0), asked
        ),
    }
    return replies.get(prompt.turn, turn.think)(prompt)


def tokens_of(messages: Sequence[Message], text: str) -> tuple[TokenLogprob, ...]:
    """The tags, words and punctuation of a reply with log-probabilities, which are made up: `LIKELY` for a word of the
    question, of the passages or said before, a common one, a tag or punctuation; `UNLIKELY` for any other word."""
    said = " ".join(each.content for each in messages if each.role != "system")
    shown = {*STOP_WORDS, *WORD.findall(said.casefold())}
    return tuple(
        TokenLogprob(token, UNLIKELY if (word := token.strip().casefold()).isalnum() and word not in shown else LIKELY)
        for token in _TOKEN.findall(text)
    )


# -- the turns -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Turn:
    """One reply of an agent."""

    temperature: float
    dice: random.Random

    def think(self, prompt: ParsedPrompt) -> str:
        """Search further, or answer."""
        answers = habits.early_answers(prompt)
        drawn = self._draw(habits.queries(prompt) + answers)
        if drawn in answers:
            return _answer(drawn, prompt)
        lead = "The evidence so far does not settle it." if prompt.evidence else "Nothing is known yet."
        return f"{lead} So the next query is <query>{drawn.text}</query>"

    def read(self, prompt: ParsedPrompt) -> str:
        """One or two sentences of the passages."""
        options = [Proposal("None", 0.8), *habits.quotes(prompt)]
        first = self._draw(options)
        if first.text == "None":
            return "<evidence>None</evidence>"
        chosen = first.text
        if self.dice.random() < 0.5:
            second = self._draw(options)
            if second.text not in ("None", first.text):
                chosen = f"{first.text} {second.text}"
        return f"Based on the query, the relevant evidence is <evidence>{chosen}</evidence>"

    def answer(self, prompt: ParsedPrompt) -> str:
        return _answer(self._draw(habits.answers(prompt)), prompt)

    def write(self, prompt: ParsedPrompt) -> str:
        """A question about a gap in a sentence of the last passage: the last name or number in it."""
        number = len(prompt.passages)
        title, text = (prompt.passages or (("", ""),))[-1]
        sentence = self.dice.choice(habits.sentences(text))
        names = [each for each in WORD.findall(sentence)[1:] if each[0].isupper() or each[0].isdigit()]
        if not names:
            return "<question>none</question> So the answer is <answer>none</answer>"
        question = f"{title.rpartition(' > ')[2]}: what is missing in {sentence.replace(names[-1], '...')!r}"
        resting = f"<passages>{' '.join(map(str, range(1, number + 1)))}</passages>"
        return f"<question>{question}?</question> {resting} So the answer is <answer>{names[-1]}</answer>"

    def having_read(self, prompt: ParsedPrompt) -> ParsedPrompt:
        """The prompt with evidence extracted from its passages."""
        return replace(prompt, thoughts=f"{prompt.thoughts} {self.read(prompt)}")

    def loop(self, prompt: ParsedPrompt) -> str:
        """Evidence from the passages, if any, as a thought; then the next search, or the answer."""
        said = ""
        if prompt.passages:
            prompt = self.having_read(prompt)
            said = f"<think>{prompt.said('evidence')[-1]}</think> "
        return said + self.think(prompt).replace("query>", "search>")

    def sentence(self, prompt: ParsedPrompt) -> str:
        """A sentence of the passages about what is to be found out next, or that it is; or the answer."""
        said = self.think(prompt)
        if not (sought := tagged("query", said)):
            return said
        found = self.having_read(replace(prompt, thoughts=f"{prompt.thoughts} {said}")).said("evidence")[-1]
        news = found != "None" and found not in prompt.thoughts
        return f"<sentence>{found if news else f'What is to be found out is {sought[0]}.'}</sentence>"

    def having_found(self, prompt: ParsedPrompt) -> ParsedPrompt:
        """The prompt with evidence from the passages of each query."""
        for query, passages in prompt.found:
            said = f"{prompt.thoughts} <query>{query}</query>"
            prompt = self.having_read(replace(prompt, thoughts=said, passages=passages))
        return prompt

    def act(self, prompt: ParsedPrompt, *, claims: bool = False) -> str:
        """Search further, or answer, in JSON. claims: with the answer of now beside a query."""
        prompt = self.having_found(prompt)
        said = self.think(prompt)
        return _as_json(said, self._draw(habits.answers(prompt)).text if claims else None)

    def having_reasoned(self, prompt: ParsedPrompt) -> ParsedPrompt:
        """The prompt with evidence about one thing after the other, as far as the question leads."""
        for _ in range(max(2, habits.hops(prompt.question))):
            sought = self._draw(habits.queries(prompt)).text
            prompt = self.having_read(replace(prompt, thoughts=f"{prompt.thoughts} <query>{sought}</query>"))
        return prompt

    def _draw(self, options: Sequence[Proposal]) -> Proposal:
        return draw(options, self.temperature, self.dice)


def _as_steps(said: str) -> str:
    """A reply of the agent in ProRAG's tags."""
    lead, opening, step = said.partition("<")
    for ours, theirs in (("query>", "subquery>"), ("evidence>", "subanswer>")):
        step = step.replace(ours, theirs)
    return f"<step>{lead.strip() or 'The documents say it.'}</step>\n{opening}{step}"


def _as_json(said: str, answer: str | None = None) -> str:
    """A reply of the agent with its step as a JSON object. answer: of now, where it stands beside a query."""
    lead, _, step = said.partition(" So the ")
    lead, step = (lead, step) if step else ("The evidence suffices.", said)
    values: dict[str, str | None] = {} if answer is None else {"answer": answer, "query": None}
    values |= {name: tagged(name, step)[0] for name in ("answer", "query") if tagged(name, step)}
    return f"{lead} {orjson.dumps(values).decode()}"


def _as_call(said: str) -> str:
    """A reply of the agent with its query as a call of the search tool."""
    sought = tagged("query", said)
    return call_text(said.partition(" So the ")[0], SEARCH, {"query": sought[0]}) if sought else said


def _as_question(note: str) -> str:
    """A sub-question, where it is a note of MuSiQue's (`Ada Lovelace >> father`) as a sentence."""
    thing, noted, asked = note.partition(" >> ")
    return f"What is the {asked} of {thing}?" if noted else note


def _listed(tag: str, lines: Iterable[str]) -> str:
    numbered = [f"{number}. {each}" for number, each in enumerate(lines, start=1)]
    return "\n".join([f"<{tag}>", *numbered, f"</{tag}>"])


# -- the judge -------------------------------------------------------------------------------------------------


def _score(prompt: ParsedPrompt, dice: random.Random) -> str:
    """A noisy score of the reasoning, or of an answer."""
    given = dict(_GIVEN.findall(prompt.question))
    quality = _quality(prompt, given, given.get("Reasoning", ""))
    score = round(min(100.0, max(0.0, 100 * quality + dice.gauss(-5, 8))))
    return f"Judged by the answer it leads to. So the score is <score>{score}</score>"


def _ranking(prompt: ParsedPrompt, dice: random.Random) -> str:
    """The candidates ranked by noisy quality, each appended to the reasoning."""
    qualities = _qualities(prompt, dice)
    order = sorted(qualities, key=lambda number: -qualities[number])
    return f"Judged by where they lead. So the ranking is <ranking>{' '.join(order)}</ranking>"


def _pick(prompt: ParsedPrompt, dice: random.Random) -> str:
    """The best and the worst candidate by noisy quality, or none if they are close."""
    qualities = _qualities(prompt, dice) or {"1": 0.0}
    better, worse = (choose(qualities, key=lambda number: qualities[number]) for choose in (max, min))
    picked = f"{better} {worse}" if qualities[better] - qualities[worse] > 0.1 else "none"
    return f"Judged by where they lead. So the pick is <pick>{picked}</pick>"


def _support(prompt: ParsedPrompt, _dice: random.Random) -> str:
    """The passages that have most of a sentence's words."""
    given = [(*name.split(), stems(text[:MOST_READ])) for name, text in _GIVEN.findall(prompt.question) if " " in name]
    passages = [(number, words) for kind, number, words in given if kind == "Passage"]
    found = [
        f"{number}: {' '.join(each for each, known in passages if share(words, known) >= MOST_WORDS) or 'none'}"
        for kind, number, words in given
        if kind == "Sentence"
    ]
    return f"Judged by the words they share. So the support is <support>{'; '.join(found)}</support>"


def _qualities(prompt: ParsedPrompt, dice: random.Random) -> dict[str, float]:
    """Noisy quality of every candidate by its number: its value in the search, where that is shown."""
    given = dict(_GIVEN.findall(prompt.question))
    names = [name for name in given if name.startswith("Candidate ")][:MOST_COMPARED]
    reasoning = given.get("Reasoning", "")[:MOST_READ]

    def quality(said: str) -> float:
        value = _VALUE.search(said)
        return float(value[1]) if value else _quality(prompt, given, f"{reasoning} {said[:MOST_READ]}")

    return {name.removeprefix("Candidate "): quality(given[name][-MOST_READ:]) + dice.gauss(0, 0.08) for name in names}


def _quality(prompt: ParsedPrompt, given: dict[str, str], reasoning: str) -> float:
    """Quality in [0, 1]: how well the answer, else the evidence, covers the correct answer; without one, how many words
    of the criteria, else of the question, are in what was said."""
    said = [text for tag in _TAGS for text in tagged(tag, reasoning)]
    answers = [given["Answer"][:MOST_READ]] if "Answer" in given else tagged("answer", reasoning)
    rubric = [stems(text) for name, text in given.items() if name.startswith("Criterion ")]
    if "Correct answer" not in given or rubric:
        asked = rubric or [stems(prompt.question.partition("\n")[0])]
        known = stems(" ".join([*said, *answers]))
        return sum(share(each, known) for each in asked) / len(asked)
    golden = given["Correct answer"][:MOST_READ].split(" or ")[:MOST_COMPARED]
    if answers:
        return f1_score(answers[-1], golden)
    return 0.3 + 0.4 * any(gold.casefold() in reasoning.casefold() for gold in golden)


def _answer(option: Proposal, prompt: ParsedPrompt) -> str:
    """Where a long answer is wanted, the sentence of the evidence that says it."""
    said = option.text
    if prompt.long:
        sentences = [each for text in prompt.evidence for each in habits.sentences(text)]
        said = next((each for each in sentences if said in each), f"The answer is {said}.")
    return f"So the answer is <answer>{said}</answer>"
