"""What a prompt of ours or of a baseline asks for: its turn, question, thoughts and passages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from preference import Message

_CUT = "[...]"
"""Ends a passage that `--max-passage-chars` cut. No evidence: a student trained on the offline teacher would say it."""
MOST_READ = 50_000
"""Characters considered of a question, thoughts, evidence or reasoning: comparing names takes quadratic time."""
_QUESTION, _THOUGHTS = "Question: ", "\nPrevious Thoughts: "
_REFERENCE, _END = ". Reference: <reference>", "</reference>"
_JUDGES = ("judge", "rank", "pick", "support")
_TURNS_BY_TAG = (
    ("<score>", "judge"),
    ("<ranking>", "rank"),
    ("<pick>", "pick"),
    ("<support>", "support"),
    ("<question>", "write"),
    ("<answers>", "check"),
    ("<route>", "route"),
    ("<questions>", "rephrase"),
    ("<steps>", "narrate"),
    ("<sentence>", "sentence"),
    ("<subanswer>", "subanswer"),
    ("<subquery>", "subquery"),
    ("<evidence>", "read"),
    ("<query>", "think"),
)
"""The first tag named in a system prompt decides the turn."""
_RAG_TURN = re.compile(r"Question: (?P<question>[^\n]*)\nPassage 1: ")
_LAST_LINE = "So the answer is <answer>"
"""In a prompt that wants reasoning before the answer."""
_SO_FAR = re.compile(r"^Reasoning so far: (.*)$", re.MULTILINE)
_PASSAGE_LINE = re.compile(r"^Passage [0-9]+: (.*?): (.*)$", re.MULTILINE)
_DOC_LINE = re.compile(r"^(?:<information>)?Doc [0-9]+\(Title: (.*?)\) (.*?)(?:</information>)?$", re.MULTILINE)
"""Passages in the formats of standard RAG and Search-R1: title and text."""
_HISTORY_LINE = re.compile(r"^(?:(Query|Reader): (.*)|Document \[[0-9]+\] \(Title: (.*?)\) (.*))$", re.MULTILINE)
"""Of agents that reply in JSON: a query, a reader's answer to it, or title and text of a document that it found."""
_CALL, _NO_SEARCH = re.compile(r'<tool_call>\n.*"query": "(.*)"\}\}\n</tool_call>'), "\nNo search is left"
"""A call of a search tool, and the line that asks for an answer after the last one."""
_LONG = "complete sentences"
"""In a prompt that wants a long answer."""
_JSON_TURNS = (('{"answer": "the answer", "query"', "claim"), ('{"query"', "act"), ('{"answer"', "settle"))
"""The first object shown in a system prompt decides the turn of such an agent."""


@dataclass(frozen=True)
class ParsedPrompt:
    """A parsed prompt. passages: title and text of each. For a judge, `question` is everything that it is shown.
    found: the queries of an agent that is shown all passages again, each with those that it found. long: whether the
    answer is to be in sentences."""

    turn: str
    question: str
    thoughts: str
    passages: tuple[tuple[str, str], ...]
    found: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    long: bool = False

    def said(self, tag: str) -> list[str]:
        """Contents of this tag in the thoughts, in order."""
        return [found.strip()[:MOST_READ] for found in tagged(tag, self.thoughts)]

    @property
    def evidence(self) -> list[str]:
        return [each for each in self.said("evidence") if each.casefold() != "none"]


def tagged(tag: str, text: str) -> list[str]:
    """Texts between a tag and the next closing one."""
    closed = text.split(f"</{tag}>")[:-1]
    return [each.partition(f"<{tag}>")[2] for each in closed if f"<{tag}>" in each]


def parse_prompt(messages: Sequence[Message]) -> ParsedPrompt:
    """Read turn, question, thoughts, passages and style of the answer from the first system and user turn."""
    return replace(_parsed(messages), long=any(_LONG in m.content for m in messages if m.role == "system"))


def _parsed(messages: Sequence[Message]) -> ParsedPrompt:
    system = next((m.content for m in messages if m.role == "system"), "")
    user = next((m.content for m in messages if m.role == "user"), "")
    turn = next((name for tag, name in _TURNS_BY_TAG if tag in system), "conclude")
    if turn in _JUDGES:
        user = _in_our_tags(user)
    if not system and "<search>" in user:
        return _parse_loop_prompt(messages)
    if "<tool_call>" in system:
        history = _CALL.sub(r"Query: \1", "\n".join(m.content for m in messages if m.role != "system"))
        return _parse_history("conclude_calls" if _NO_SEARCH in history else "call", history)
    if acts := next((name for shown, name in _JSON_TURNS if shown in system), None):
        return _parse_history(acts, user)
    if turn in ("subquery", "subanswer") or "</subquery>" in user:
        return _parse_steps(turn, user)
    if turn == "conclude" and "\nQuery: " in user:
        return _parse_history("reader", user)
    if turn in ("conclude", "sentence") and (asked := _RAG_TURN.match(user)):
        said = " ".join(f"<evidence>{each[:MOST_READ]}</evidence>" for each in _SO_FAR.findall(user))
        if turn == "conclude":
            turn = "reason" if _LAST_LINE in system else "answer"
        return ParsedPrompt(turn, asked["question"][:MOST_READ], said, tuple(_PASSAGE_LINE.findall(user)))
    if turn in ("write", "check"):
        first = user.partition("\n")[0].removeprefix(_QUESTION)
        return ParsedPrompt(turn, first[:MOST_READ], "", tuple(_PASSAGE_LINE.findall(user)))
    if not user.startswith(_QUESTION):
        shown = user if turn in _JUDGES else user[:MOST_READ]
        return ParsedPrompt(turn, question=shown, thoughts="", passages=())
    said, _, reference = user.partition(_REFERENCE) if user.endswith(_END) else (user, "", "")
    question, _, thoughts = said.removeprefix(_QUESTION).partition(_THOUGHTS)
    titled = (each.partition("\n") for each in reference.removesuffix(_END).split("Wikipedia Title: ")[1:])
    return ParsedPrompt(
        turn=turn,
        question=question.strip()[:MOST_READ],
        thoughts=thoughts[:MOST_READ],
        passages=tuple((title.strip(), text.strip().removesuffix(_CUT).rstrip()) for title, _, text in titled),
    )


def _parse_history(turn: str, user: str) -> ParsedPrompt:
    """Parse the prompt of an agent that replies in JSON, or of its reader, who is asked one query."""
    question, _, history = user.removeprefix(_QUESTION).partition("\n")
    thoughts, found = "", list[tuple[str, list[tuple[str, str]]]]()
    for kind, said, title, text in _HISTORY_LINE.findall(history[:MOST_READ]):
        if kind == "Query":
            found.append((said, []))
        elif kind == "Reader" and found:
            reported = "None" if said == "nothing was found" else said
            thoughts += f" <query>{found[-1][0]}</query> <evidence>{reported}</evidence>"
        elif found:
            found[-1][1].append((title, text.removesuffix(_CUT).rstrip()))
    searched = tuple((query, tuple(passages)) for query, passages in found if passages)
    return ParsedPrompt(turn, question[:MOST_READ], thoughts, (), searched)


def _parse_steps(turn: str, user: str) -> ParsedPrompt:
    """Parse ProRAG's steps: subqueries are queries, subanswers are evidence; the last documents are to be read."""
    question, _, history = user.removeprefix(_QUESTION).partition("\n")
    said, _, last = history.rpartition("<retrieval>")
    thoughts = _in_our_tags(re.sub(r"<retrieval>[\s\S]*?</retrieval>", "", said + last.partition("</retrieval>")[2]))
    passages = tuple((title, text.removesuffix(_CUT).rstrip()) for title, text in _DOC_LINE.findall(last))
    return ParsedPrompt(turn, question[:MOST_READ], thoughts[:MOST_READ], passages)


def _in_our_tags(said: str) -> str:
    """Subqueries as queries, subanswers as evidence."""
    return re.sub(r"(</?)subquery>", r"\1query>", re.sub(r"(</?)subanswer>", r"\1evidence>", said))


def _parse_loop_prompt(messages: Sequence[Message]) -> ParsedPrompt:
    """Parse Search-R1's chat: searches are queries, thoughts about results are evidence."""
    thoughts = " ".join(m.content for m in messages if m.role == "assistant")
    thoughts = re.sub(r"<(/?)search>", r"<\1query>", re.sub(r"<(/?)think>", r"<\1evidence>", thoughts))
    question = messages[0].content.rpartition(" Question: ")[2].strip()
    passages = tuple(_DOC_LINE.findall(messages[-1].content))
    return ParsedPrompt("loop", question[:MOST_READ], thoughts[:MOST_READ], passages)
