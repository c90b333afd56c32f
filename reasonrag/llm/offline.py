"""The offline teacher: an extractive agent that uses only its prompt, for demos, tests and dry runs.

It infers the turn from the tags in its system prompt, scores queries, sentences and answer spans by word overlap, and
samples among them with temperature: right often and wrong often. It has no knowledge, no network and no access to gold
answers (only a judge's prompt may hold any). A reply is a pure function of messages, temperature, seed and choice.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import orjson

from preference import Message, f1_score
from reasonrag.llm.chat import ChatRequest, Completion, estimate_tokens

NAME = "offline"
STUDENT = "offline-student"
"""Its name as a value model beside itself: a different policy, because of its sampling."""

MOST_READ = 50_000
"""Characters that are considered of a question, thoughts, evidence or reasoning, more than any honest prompt has:
comparing names takes quadratic time."""
MOST_TITLE = 1000
"""Characters kept of a passage's title, which is repeated before each of its sentences."""
MOST_OF_A_CHOICE = 600
"""Characters of a question in which `A or B?` is looked for, in cubic time: twice the longest of our data sets."""
MOST_COMPARED = 200
"""Number of gold answers or candidates that are considered."""
_QUESTION, _THOUGHTS = "Question: ", "\nPrevious Thoughts: "
_REFERENCE, _END = ". Reference: <reference>", "</reference>"
_TAGS = ("query", "evidence", "answer")
_GIVEN = re.compile(
    r"^(Correct answer|Reasoning|Answer|Candidate [0-9]+|Passage [0-9]+|Criterion [0-9]+): (.*)$", re.MULTILINE
)
_TURNS_BY_TAG = (
    ("<score>", "judge"),
    ("<ranking>", "rank"),
    ("<pick>", "pick"),
    ("<evidence>", "read"),
    ("<query>", "think"),
)
"""The first tag named in a system prompt decides the turn."""
_RAG_TURN = re.compile(r"Question: (?P<question>[^\n]*)\nPassage 1: ")
_PASSAGE_LINE = re.compile(r"^Passage [0-9]+: (.*?): (.*)$", re.MULTILINE)
_DOC_LINE = re.compile(r"^(?:<information>)?Doc [0-9]+\(Title: (.*?)\) (.*?)(?:</information>)?$", re.MULTILINE)
"""Passages in the formats of standard RAG and Search-R1: title and text."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(0-9])")
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"\b[A-Z][\w'\u2019.-]*(?:(?: (?:of|the|and|de|von|van|for|&))* [A-Z0-9][\w'\u2019.-]*)*")
_DATE = re.compile(
    r"\b(?:\d{1,2} )?(?:January|February|March|April|May|June|July|August|September|October|November|December)"
    r"(?: \d{1,2},)? \d{4}\b|\b1\d{3}\b|\b20\d{2}\b"
)
_NUMBER = re.compile(r"\b\d[\d,.]*\d\b|\b\d\b")
_NOUN = re.compile(
    r"\b(?:is|was|are|were) (?:an?|the) ([a-z][\w -]{2,40}?)(?=[.,;(]| (?:who|that|which|from|in|by|of|with)\b)"
)
_VERDICT_QUESTION = re.compile(r"(?:is|are|was|were|do|does|did|has|have|had|can|could)\b", re.IGNORECASE)
_EITHER_OR = re.compile(r"(?:,|:|between|\bor both\b)?\s*([^,:?]+?),? or ([^,?]+)\?")
_SUPERLATIVE_LOW = re.compile(r"\b(?:first|earlier|earliest|older|oldest)\b", re.IGNORECASE)
_STOP_WORDS = frozenset(
    "a an the of in on at to for from by with and or as is are was were be been being do does did has have had it "
    "its this that these those he she his her him they their them who whom whose which what when where why how many "
    "much both same also not no yes than then there here into about between first later".split()
)


@dataclass(frozen=True)
class ParsedPrompt:
    """A parsed prompt. passages: title and text of each. For a judge, `question` is everything shown: question, correct
    answer and reasoning."""

    turn: str
    question: str
    thoughts: str
    passages: tuple[tuple[str, str], ...]

    def said(self, tag: str) -> list[str]:
        """Contents of this tag in the thoughts, in order."""
        return [found.strip()[:MOST_READ] for found in _tagged(tag, self.thoughts)]

    @property
    def evidence(self) -> list[str]:
        return [each for each in self.said("evidence") if each.casefold() != "none"]


@dataclass(frozen=True)
class _Proposal:
    """A possible reply, with its log-odds at temperature 1."""

    text: str
    logit: float


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
        return as_completions(request, replies)

    async def check(self) -> None:
        """Always available."""

    async def close(self) -> None:
        """Nothing to close."""


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
    if prompt.turn == "read":
        return _read(prompt, temperature, dice)
    if prompt.turn == "judge":
        return _score(prompt, dice)
    if prompt.turn == "rank":
        return _ranking(prompt, dice)
    if prompt.turn == "pick":
        return _pick(prompt, dice)
    if prompt.turn == "conclude":
        return _answer(_draw(_answers(prompt), temperature, dice))
    if prompt.turn == "answer":
        return _answer(_draw(_answers(_having_read(prompt, temperature, dice)), temperature, dice))
    if prompt.turn == "loop":
        return _loop(prompt, temperature, dice)
    return _think(prompt, temperature, dice)


def parse_prompt(messages: Sequence[Message]) -> ParsedPrompt:
    """Read turn, question, thoughts and passages from the first system and user turn."""
    system = next((m.content for m in messages if m.role == "system"), "")
    user = next((m.content for m in messages if m.role == "user"), "")
    turn = next((name for tag, name in _TURNS_BY_TAG if tag in system), "conclude")
    if not system and "<search>" in user:
        return _parse_loop_prompt(messages)
    if turn == "conclude" and (asked := _RAG_TURN.match(user)):
        passages = tuple(_PASSAGE_LINE.findall(user))
        return ParsedPrompt("answer", asked["question"][:MOST_READ], thoughts="", passages=passages)
    if not user.startswith(_QUESTION):
        shown = user if turn in ("judge", "rank", "pick") else user[:MOST_READ]
        return ParsedPrompt(turn, question=shown, thoughts="", passages=())
    question, thoughts, reference = _parts(user)
    titled = (passage.partition("\n") for passage in reference.split("Wikipedia Title: ")[1:])
    return ParsedPrompt(
        turn=turn,
        question=question.strip()[:MOST_READ],
        thoughts=thoughts[:MOST_READ],
        passages=tuple((title.strip(), text.strip()) for title, _, text in titled),
    )


def _parts(user: str) -> tuple[str, str, str]:
    """Question, thoughts and reference of a user turn; empty if absent."""
    end, thoughts, reference = len(user), "", ""
    asked = user.find(_THOUGHTS)
    cited = user.find(_REFERENCE)
    if cited >= 0 and user.endswith(_END) and cited + len(_REFERENCE) + len(_END) <= end:
        reference, end = user[cited + len(_REFERENCE) : -len(_END)], cited
    if 0 <= asked < end:
        thoughts, end = user[asked + len(_THOUGHTS) : end], asked
    return user[len(_QUESTION) : end], thoughts, reference


def _parse_loop_prompt(messages: Sequence[Message]) -> ParsedPrompt:
    """Parse Search-R1's chat: searches are queries, thoughts about results are evidence."""
    thoughts = " ".join(m.content for m in messages if m.role == "assistant")
    for theirs, ours in (("search", "query"), ("think", "evidence")):
        thoughts = re.sub(rf"<(/?){theirs}>", rf"<\1{ours}>", thoughts)
    question = messages[0].content.rpartition(" Question: ")[2].strip()
    passages = tuple(_DOC_LINE.findall(messages[-1].content))
    return ParsedPrompt("loop", question[:MOST_READ], thoughts[:MOST_READ], passages)


# -- the turns -------------------------------------------------------------------------------------------------


def _think(prompt: ParsedPrompt, temperature: float, dice: random.Random) -> str:
    """Search further, or answer: the more was read and the fewer leads are left, the likelier an answer."""
    queries, answers = _queries(prompt), _answers(prompt)
    searched, found = len(prompt.said("query")), len(prompt.evidence)
    eagerness = -2.2 + 1.1 * found + 0.35 * max(0, searched - found)
    answers = [_Proposal(each.text, each.logit + eagerness) for each in answers]
    drawn = _draw(queries + answers, temperature, dice)
    if drawn in answers:
        return _answer(drawn)
    lead = "The evidence so far does not settle it." if found else "Nothing is known yet."
    return f"{lead} So the next query is <query>{drawn.text}</query>"


def _read(prompt: ParsedPrompt, temperature: float, dice: random.Random) -> str:
    """One or two sentences of the passages, by overlap with the latest query and the question."""
    query = (prompt.said("query") or [prompt.question])[-1]
    wanted, context = _stems(query), _stems(prompt.question)
    options = [_Proposal("None", 0.8)]
    for rank, (whole_title, text) in enumerate(prompt.passages):
        title = whole_title[:MOST_TITLE]
        on_title, named = 2.5 * _share(_stems(title), wanted), title.casefold()
        for position, sentence in enumerate(sentences(text)):
            stems = _stems(sentence)
            overlap = 3.5 * _share(wanted, stems) + 1.5 * _share(context, stems)
            logit = overlap + on_title - 0.3 * rank - 0.1 * position
            shown = sentence if named in sentence.casefold() else f"{title}: {sentence}"
            options.append(_Proposal(shown, logit))
    first = _draw(options, temperature, dice)
    if first.text == "None":
        return "<evidence>None</evidence>"
    chosen = first.text
    if dice.random() < 0.5:
        second = _draw(options, temperature, dice)
        if second.text not in ("None", first.text):
            chosen = f"{first.text} {second.text}"
    return f"Based on the query, the relevant evidence is <evidence>{chosen}</evidence>"


def _having_read(prompt: ParsedPrompt, temperature: float, dice: random.Random) -> ParsedPrompt:
    """The prompt with evidence extracted from its passages."""
    return replace(prompt, thoughts=f"{prompt.thoughts} {_read(prompt, temperature, dice)}")


def _loop(prompt: ParsedPrompt, temperature: float, dice: random.Random) -> str:
    """Evidence from the passages, if any, as a thought; then the next search, or the answer."""
    said = ""
    if prompt.passages:
        prompt = _having_read(prompt, temperature, dice)
        said = f"<think>{prompt.said('evidence')[-1]}</think> "
    return said + _think(prompt, temperature, dice).replace("query>", "search>")


def _score(prompt: ParsedPrompt, dice: random.Random) -> str:
    """A noisy score of the reasoning, or of an answer."""
    given = _given(prompt)
    rated = _answer_quality if "Answer" in given else _quality
    quality = rated(prompt, given, given.get("Reasoning", ""))
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


def _qualities(prompt: ParsedPrompt, dice: random.Random) -> dict[str, float]:
    """Noisy quality of every candidate by its number."""
    given = _given(prompt)
    names = [name for name in given if name.startswith("Candidate ")][:MOST_COMPARED]
    reasoning = given.get("Reasoning", "")[:MOST_READ]
    return {
        name.removeprefix("Candidate "): _quality(prompt, given, f"{reasoning} {given[name][:MOST_READ]}")
        + dice.gauss(0, 0.08)
        for name in names
    }


def _given(prompt: ParsedPrompt) -> dict[str, str]:
    """A judge's inputs besides the question, by the label at the beginning of their line."""
    return dict(_GIVEN.findall(prompt.question))


def _quality(prompt: ParsedPrompt, given: dict[str, str], reasoning: str) -> float:
    """Quality in [0, 1]: how well the last answer, else the evidence, covers the correct answer; if none was shown, how
    much of the question was searched and found."""
    if "Correct answer" not in given:
        said = " ".join(text for tag in _TAGS for text in _tagged(tag, reasoning))
        return _share(_stems(prompt.question.partition("\n")[0]), _stems(said))
    golden = given["Correct answer"][:MOST_READ].split(" or ")[:MOST_COMPARED]
    answers = _tagged("answer", reasoning)
    if answers:
        return f1_score(answers[-1], golden)
    return 0.3 + 0.4 * any(gold.casefold() in reasoning.casefold() for gold in golden)


def _answer_quality(prompt: ParsedPrompt, given: dict[str, str], reasoning: str) -> float:
    """Quality of an answer in [0, 1]: how well it meets the criteria, by their words, if any; else how well it covers
    the correct answer; if none was shown, how much of the question is in a passage's sentence that holds the answer."""
    answer = given["Answer"]
    rubric = [_stems(text) for name, text in given.items() if name.startswith("Criterion ")]
    if rubric:
        met = _stems(f"{reasoning} {answer}")
        return sum(_share(asked, met) for asked in rubric) / len(rubric)
    if "Correct answer" in given:
        return f1_score(answer[:MOST_READ], given["Correct answer"][:MOST_READ].split(" or ")[:MOST_COMPARED])
    read = " ".join(text for name, text in given.items() if name.startswith("Passage "))
    wanted = answer.casefold()
    holding = [each for each in sentences(read) if wanted in each.casefold()]
    asked = _stems(prompt.question.partition("\n")[0])
    return max((0.3 + 0.7 * _share(asked, _stems(each)) for each in holding), default=0.0)


def _answer(option: _Proposal) -> str:
    return f"So the answer is <answer>{option.text}</answer>"


# -- options ---------------------------------------------------------------------------------------------------


def _queries(prompt: ParsedPrompt) -> list[_Proposal]:
    """Possible next queries: the question, its names, and names from the evidence."""
    asked = dict.fromkeys(query.casefold() for query in prompt.said("query"))
    names = _names(prompt.question)
    rest = " ".join(
        word for word in _WORD.findall(prompt.question) if word.casefold() not in _STOP_WORDS and not word[0].isupper()
    )
    options = [_Proposal(prompt.question.rstrip("?"), 1.4)]
    options += [_Proposal(name, 1.0) for name in names]
    options += [_Proposal(f"{name} {rest}".strip(), 0.8) for name in names]
    known = " ".join(names).casefold()
    read = " ".join(asked)
    for age, evidence in enumerate(reversed(prompt.evidence)):
        for name in _names(evidence):
            if name.casefold() not in known and name.casefold() not in read:
                options += [_Proposal(name, 1.8 - 0.5 * age), _Proposal(f"{name} {rest}".strip(), 1.2 - 0.5 * age)]
    return _best_of_each(option for option in options if option.text.casefold() not in asked) or [
        _Proposal(prompt.question, -2.0)
    ]


def _answers(prompt: ParsedPrompt) -> list[_Proposal]:
    """Possible answers: yes or no, one of the compared things, or a span of the evidence."""
    question = prompt.question
    if _VERDICT_QUESTION.match(question):
        return _verdicts(prompt)
    if compared := _EITHER_OR.search(question[:MOST_OF_A_CHOICE]):
        return _compared(prompt, [_trim(each) for each in compared.groups()])
    asked = _stems(question)
    options: list[_Proposal] = []
    for age, evidence in enumerate(reversed(prompt.evidence)):
        for sentence in sentences(evidence):
            support = 2.0 * _share(asked, _stems(sentence)) - 0.4 * age
            options += [
                _Proposal(span, support + fit + _closeness(span, sentence, asked))
                for span, fit in _spans(sentence, question)
                if not _stems(span) <= asked
            ]
    guesses = [_Proposal(name, -1.0) for name in _names(question)] or [_Proposal("unknown", -1.0)]
    return _best_of_each(options) or guesses


def _verdicts(prompt: ParsedPrompt) -> list[_Proposal]:
    """Yes if the things in question share a telling word in the evidence, else no; unsure without evidence."""
    evidence = prompt.evidence
    if len(evidence) < 2:
        return [_Proposal("yes", 0.0), _Proposal("no", 0.0)]
    known = _stems(prompt.question)
    shared = (_stems(evidence[-1]) & _stems(evidence[-2])) - known
    lean = 0.8 if shared else -0.8
    return [_Proposal("yes", lean), _Proposal("no", -lean)]


def _compared(prompt: ParsedPrompt, options: list[str]) -> list[_Proposal]:
    """Which of two has the lower (or higher) year in the evidence; unsure without both."""
    years = [_year_beside(option, prompt.evidence) for option in options]
    if years[0] is None or years[1] is None or years[0] == years[1]:
        return [_Proposal(option, 0.0) for option in options]
    lower_first = years[0] < years[1]
    wanted = 0 if lower_first == bool(_SUPERLATIVE_LOW.search(prompt.question)) else 1
    return [_Proposal(option, 1.5 if i == wanted else -1.0) for i, option in enumerate(options)]


def _year_beside(name: str, evidence: Sequence[str]) -> int | None:
    """The first year in the latest evidence that mentions `name`."""
    for text in reversed(evidence):
        if name.casefold() in text.casefold():
            year = re.search(r"\b[12]\d{3}\b", text[text.casefold().index(name.casefold()) :])
            if year:
                return int(year[0])
    return None


def _spans(sentence: str, question: str) -> list[tuple[str, float]]:
    """Candidate answers in a sentence, with how well their kind fits the question."""
    lowered = question.casefold()
    wants_date = bool(re.search(r"\bwhen\b|\bwhat year\b|\bwhich year\b|\bdate\b|\byear\b", lowered))
    wants_number = bool(re.search(r"\bhow (?:many|much|old|long|far|tall)\b|\bpopulation\b", lowered))
    wants_thing = bool(re.search(r"\boccupation\b|\bprofession\b|\bgenre\b|\bkind\b|\btype\b|\bsport\b", lowered))
    spans = [(match[0], 2.5 if wants_date else -1.5) for match in _DATE.finditer(sentence)]
    spans += [(match[0], 2.0 if wants_number else -2.0) for match in _NUMBER.finditer(sentence)]
    spans += [(match[1], 2.5 if wants_thing else -0.8) for match in _NOUN.finditer(sentence)]
    name_fit = -0.5 if wants_date or wants_number or wants_thing else 0.8
    return spans + [(name, name_fit) for name in _names(sentence)]


def _closeness(span: str, sentence: str, asked: frozenset[str]) -> float:
    """Up to 1 for a span whose neighbouring words are words of the question."""
    start = sentence.find(span)
    around = sentence[max(0, start - 40) : start] + sentence[start + len(span) : start + len(span) + 30]
    return min(1.0, 0.5 * len(_stems(around) & asked))


# -- words -----------------------------------------------------------------------------------------------------


def sentences(text: str) -> list[str]:
    """The text split into sentences."""
    return _SENTENCE_END.split(text)


def _names(text: str) -> list[str]:
    """Capitalised spans in order, without a capital that only begins the sentence as a common word."""
    found = (_trim(match[0]) for match in _NAME.finditer(text))
    kept = (name for name in found if len(name) > 1 and name.casefold() not in _STOP_WORDS)
    return list(dict.fromkeys(_without_opening_word(name) for name in kept))


def _without_opening_word(name: str) -> str:
    first, _, rest = name.partition(" ")
    return rest if rest and first.casefold() in _STOP_WORDS - {"the"} else name


def _tagged(tag: str, text: str) -> list[str]:
    """Texts between a tag and the next closing one."""
    found, (opening, closing) = [], (f"<{tag}>", f"</{tag}>")
    start = text.find(opening)
    while start >= 0 and (end := text.find(closing, start)) >= 0:
        found.append(text[start + len(opening) : end])
        start = text.find(opening, end + len(closing))
    return found


def _trim(text: str) -> str:
    return text.strip(" .,;:'\"\u2019-")


def _stems(text: str) -> frozenset[str]:
    """Words without stop words, cut to six letters: a stemmer good enough for overlap."""
    return frozenset(word[:6] for word in _WORD.findall(text.casefold()) if word not in _STOP_WORDS)


def _share(part: frozenset[str], whole: frozenset[str]) -> float:
    return len(part & whole) / len(part) if part else 0.0


def _best_of_each(options: Iterable[_Proposal]) -> list[_Proposal]:
    """Each text once, with its highest logit, in order of appearance."""
    best: dict[str, _Proposal] = {}
    for option in options:
        key = option.text.casefold()
        if option.text and (key not in best or best[key].logit < option.logit):
            best[key] = option
    return list(best.values())


def _draw(options: Sequence[_Proposal], temperature: float, dice: random.Random) -> _Proposal:
    """Sample by softmax over logits / temperature; the best at temperature 0. Never an empty option."""
    options = [option for option in options if option.text.strip()] or [_Proposal("unknown", 0.0)]
    best = max(options, key=lambda option: option.logit)
    if temperature == 0:
        return best
    weights = [math.exp((option.logit - best.logit) / temperature) for option in options]
    return dice.choices(options, weights)[0]
