"""The only renderer: the prompt of a state, in search, in training data and at evaluation.

The user turn's layout is the contract with RAG_ProGuide. System prompts are files, `<turn>.txt`, which a user's
directory may override one by one; a saved directory describes all of them (`save_prompts`). Text of others is made
harmless here (`inert`): questions and passages cannot open our tags, and no text can contain a chat template's special
token or a trainer's placeholder (`preference.export.sanitize`).
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path

import orjson
from pydantic import BaseModel

from preference import AgentAction, Message
from preference.export.private_files import write_file
from preference.export.sanitize import plain_text
from reasonrag.agent.settings import AGENTS, OURS, AgentName
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import SHORT, AnswerStyle
from reasonrag.errors import InputError, choices
from reasonrag.files import link_out_of, read_record, read_small

_TURNS = ("begin", "think", "read", "conclude", "reader")
"""An agent's own system prompts; its files say which it has. begin: of the first turn, if that is not think."""
_OF_EVERY_RUN = ("think", "read", "conclude", "reader", "repair", "vary", "judge", "rank")
"""Prompts that are part of every run's hash, used or not, of those that the agent has."""
_COMMON = (
    *("repair", "vary", "judge", "rank", "answer", "rubric", "support", "prefer", "pick"),
    *("rephrase", "narrate", "question", "check", "short", "long"),
)
"""Prompts of every agent: of the repair turn, of the turn that asks for a different step (vary), of the judges (of
steps judge, which scores, rank and pick; of answers rubric, and answer without one, support of their sentences, and
prefer of two), of who writes warm-up rows (rephrase, narrate) and questions (question; check is of their reader), and
what stands at `STYLE`."""
PROMPT_NAMES = (*_TURNS, *_COMMON)
OF_THE_AGENT = (*_TURNS, "short", "long", "repair")
"""The prompts that a running agent uses: those that a model's folder keeps."""
STYLE = "{style}"
"""In a prompt, the place of the answer instruction: `short.txt` or `long.txt`."""
LAYOUT = "layout.json"
"""Beside prompts that are meant byte for byte, white space around them included."""
PROMPTS = "prompts"
"""Folder of prompts beside a model, in a data set and in the working directory."""
BASELINES = "baselines"
"""Folder of the other methods' prompts, below the prompts; `evaluation.methods.baseline_prompts` reads it."""

_OUR_TAGS = re.compile(r"<\s*(/?)\s*(query|evidence|answer|reference|score|ranking|pick)\s*>", re.IGNORECASE)
_NO_TAGS_OF_THOUGHTS = re.compile(r"<\s*(/?)\s*(reference|score|ranking|pick)\s*>", re.IGNORECASE)
_TAGS_OF_JUDGES = re.compile(r"<\s*(/?)\s*(support|question|passages|answers)\s*>", re.IGNORECASE)


@dataclass(frozen=True)
class Prompts:
    """The prompts of an agent, by name. style: of answers, for questions that name none."""

    texts: Mapping[str, str]
    agent: AgentName = OURS
    style: AnswerStyle = SHORT

    def __getitem__(self, name: str) -> str:
        return self.texts[name]

    @property
    def agent_identity(self) -> dict[str, str]:
        """The key of a configuration, and of records; absent for ours, as before there were others."""
        return {} if self.agent == OURS else {"agent": self.agent}

    def changed(self, **texts: str) -> Prompts:
        """These prompts, with some in other words."""
        return replace(self, texts={**self.texts, **texts})

    def system(self, action: AgentAction, *, first: bool = False, style: AnswerStyle | None = None) -> str:
        """The system turn of a state. first: whether it is the first of its question."""
        begins = first and action == "think" and "begin" in self.texts
        return self.with_style(self["begin" if begins else action], style)

    def with_style(self, text: str, style: AnswerStyle | None = None) -> str:
        """A prompt with the instruction for answers of a style; None: the usual one."""
        return text.replace(STYLE, self["long" if (style or self.style) == "long" else "short"])

    @property
    def has_styles(self) -> bool:
        """Whether the agent's prompts have a place for the style."""
        return any(STYLE in self.texts.get(name, "") for name in _TURNS)

    def hash_with(self, *also: str) -> str:
        """Hash of the prompts that are part of every run, and of others that it uses, in 16 hexadecimal digits."""
        of_some = [*(["short", "long"] if self.has_styles else []), "begin"]
        texts = [self[name] for name in dict.fromkeys((*_OF_EVERY_RUN, *also, *of_some)) if name in self.texts]
        return hashlib.sha256(orjson.dumps(texts)).hexdigest()[:16]


def style_recorded(style: AnswerStyle) -> str | None:
    """The style as records have it: null, and absent, for short answers, as before there were others."""
    return None if style == SHORT else style


def style_identity(style: AnswerStyle) -> dict[str, str]:
    """The key of a configuration that decides answers; none for short ones."""
    return {} if style == SHORT else {"style": style}


def load_prompts(directory: Path | None = None, style: AnswerStyle = SHORT, agent: AgentName | None = None) -> Prompts:
    """The package's prompts of an agent, each replaced by `directory/<name>.txt` if that file exists.

    agent: None: the one that the folder names, or else ours. style: of answers, where a question names none. Raises
    InputError for a directory that is missing, has none of these files, has text files of other names or is another
    agent's, and for a style that its prompts have no place for.
    """
    layout = (directory and read_record(directory / LAYOUT, _Layout, "Restore it, or remove it")) or _Layout()
    named = layout.agent or agent or OURS
    if agent is not None and named != agent:
        raise InputError(f"--prompts {directory}: they are those of the agent {named}, and --agent is {agent or OURS}")
    texts = _packaged(named)
    if directory is not None:
        of_others = [name for name in _TURNS[1:] if name not in texts and (directory / f"{name}.txt").exists()]
        known = [*(name for name in PROMPT_NAMES[1:] if name in texts), "begin"]
        given = {} if of_others else _own_prompts(directory, known, exact=layout.exact)
        if agent or of_others:  # a judge's folder may have any agent's prompts beside its own
            _check_agent(directory, named, of_others, given)
        texts |= given
    for name, place, what in (
        ("repair", "{detail}", "what was wrong with the reply"),
        ("vary", "{siblings}", "steps"),
    ):
        if place not in texts[name]:
            raise InputError(f"{name}.txt must contain {place}, the place for {what}")
    prompts = Prompts(texts, named, style)
    if style != SHORT and not prompts.has_styles:
        raise InputError(
            f"--style {style} would change nothing: no prompt in {directory} has {STYLE}, the place for the answer "
            "instruction; write it there, or leave out --style"
        )
    return prompts


def _packaged(agent: AgentName) -> dict[str, str]:
    ours = resources.files("reasonrag").joinpath("prompts")
    own = ours if agent == OURS else ours.joinpath("agents", agent)
    files = [place.joinpath(f"{name}.txt") for place, names in ((ours, _COMMON), (own, PROMPT_NAMES)) for name in names]
    return {file.name.removesuffix(".txt"): file.read_text("utf-8").strip() for file in files if file.is_file()}


def _check_agent(directory: Path, agent: AgentName, of_others: Sequence[str], given: Mapping[str, str]) -> None:
    """Raises InputError for prompts of other agents. of_others: names of files that this agent has not."""
    packaged = {each: _packaged(each) for each in AGENTS}
    for name in of_others:
        have = " and ".join(each for each in AGENTS if name in packaged[each])
        raise InputError(f"--prompts {directory}: {name}.txt is a prompt of the agents {have}, and --agent is {agent}")
    whose = [[each for each in AGENTS if packaged[each].get(name) == text.strip()] for name, text in given.items()]
    others = [each for each in whose if each and agent not in each]
    if not others and agent != OURS and any("<query>" in text for text in given.values()):
        others = [[OURS]]
    if others:
        named = min(others, key=len)
        they = f"those of the agent{'s' * (len(named) > 1)} {' and '.join(named)}"
        raise InputError(f"--prompts {directory}: they are {they}, and --agent is {agent}")


class _Layout(BaseModel):
    """What a folder says of its prompts: whether they are meant byte for byte, and for which agent."""

    exact: bool = False
    agent: AgentName | None = None


def save_prompts(prompts: Prompts, folder: Path, *, shared: bool = False) -> None:
    """Write what an agent is prompted with; loading it gives the same `renderer_hash`. An earlier folder is replaced
    as a whole. shared: files that other users may read, as a model's. Raises OSError."""
    scratch = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    styles = () if prompts.has_styles else ("short", "long")
    kept = {name: prompts[name] for name in OF_THE_AGENT if name in prompts.texts and name not in styles}
    exact = any(text != text.strip() or "\r" in text for text in kept.values())
    for name, text in kept.items():
        write_file(scratch / f"{name}.txt", (text if exact else f"{text}\n").encode(), shared=shared)
    layout = ({"exact": True} if exact else {}) | ({} if prompts.agent == OURS else {"agent": prompts.agent})
    if layout:
        write_file(scratch / LAYOUT, orjson.dumps(layout) + b"\n", shared=shared)
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)


def prompts_beside(folder: Path) -> Path | None:
    """The folder of prompts that came with a data set or a model; None if there is none.

    Raises InputError where something in it is no plain file, or a link out of `folder`: a model would be sent it.
    """
    found = folder / PROMPTS
    if not found.is_dir():
        return None
    files = [each for each in (*found.glob("*.txt"), found / LAYOUT) if each.exists()]
    if link := link_out_of(folder, (found, *files)):
        raise InputError(
            f"{link[0]} is a link to {link[1]}, outside of {folder}: put a copy in its place, or remove it"
        )
    if other := next((each for each in files if not each.is_file()), None):
        raise InputError(f"{other} is not a file; remove it, as prompts are files")
    return found


def _own_prompts(directory: Path, known: Sequence[str], *, exact: bool) -> dict[str, str]:
    names = ", ".join(f"{name}.txt" for name in known)
    if not directory.is_dir():
        raise InputError(f"--prompts {directory} is not a directory; give one with any of {names}")
    if not any(directory.glob("*.txt")) and not (directory / BASELINES).is_dir():
        raise InputError(f"--prompts {directory} has no prompt file; it may have any of {names}")
    return read_prompt_files(directory, known, exact=exact)


def read_prompt_files(directory: Path, names: Sequence[str], *, exact: bool = False) -> dict[str, str]:
    """The texts of a folder's prompts by name. exact: white space around them, and carriage returns, are meant. Raises
    InputError for text files of other names, and for unreadable and empty ones."""
    texts = {}
    for file in sorted(directory.glob("*.txt")):
        if file.stem not in names:
            raise InputError(f"{file} does not name a prompt: {choices(file.stem, names)}")
        try:
            text = read_small(file).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read the prompt {file}: {error}") from error
        if not text.strip():
            raise InputError(f"{file} is empty; remove it to use the default prompt")
        texts[file.stem] = text if exact else text.replace("\r\n", "\n").replace("\r", "\n").strip()
    return texts


def render_prompt(
    prompts: Prompts,
    action: AgentAction,
    *,
    question: str,
    thoughts: Sequence[str],
    passages: Sequence[Passage] = (),
    style: AnswerStyle | None = None,
) -> tuple[Message, Message]:
    """System and user turn of a state. passages: as shown, for read turns only. style: the question's own, if any."""
    user = f"Question: {inert(question)}"
    if thoughts:
        user += "\nPrevious Thoughts: " + _join(thoughts)
    if action == "read":
        references = "".join(
            f"Wikipedia Title: {inert(passage.title)}\n{inert(passage.text)}\n\n" for passage in passages
        )
        user += f". Reference: <reference>{references}</reference>"
    system = prompts.system(action, first=not thoughts, style=style)
    return Message(role="system", content=system), Message(role="user", content=user)


def render_repair(prompts: Prompts, prompt: Sequence[Message], *, reply: str, detail: str) -> tuple[Message, ...]:
    """The repair turn: the prompt, the reply that did not parse, and its parse error."""
    return _continued(prompt, reply, prompts["repair"].replace("{detail}", detail))


def render_variation(prompts: Prompts, prompt: Sequence[Message], *, said: Sequence[str]) -> tuple[Message, ...]:
    """The turn that asks for a different step: the prompt, the first sibling's reply, and all of them.

    said: replies of the siblings so far, at least one.
    """
    listed = "\n".join(f"- {plain_text(each)}" for each in dict.fromkeys(said))
    return _continued(prompt, said[0], prompts["vary"].replace("{siblings}", listed))


def _continued(prompt: Sequence[Message], reply: str, request: str) -> tuple[Message, ...]:
    return (*prompt, Message(role="assistant", content=plain_text(reply)), Message(role="user", content=request))


def render_judgement(
    prompts: Prompts,
    *,
    question: str,
    thoughts: Sequence[str],
    golden_answers: Sequence[str] = (),
) -> tuple[Message, Message]:
    """The prompt for scoring some reasoning. `golden_answers`: empty unless the recipe shows them to judges."""
    return _judges(prompts["judge"], [*_known(question, golden_answers), _reasoning(thoughts)])


def render_ranking(
    prompts: Prompts,
    *,
    question: str,
    thoughts: Sequence[str],
    candidates: Sequence[str],
    golden_answers: Sequence[str] = (),
    passages: Sequence[Passage] = (),
) -> tuple[Message, Message]:
    """The prompt for ranking `candidates`, replies of siblings, numbered from 1 in the given order."""
    lines = _known(question, golden_answers, passages)
    if thoughts:
        lines.append(_reasoning(thoughts))
    return _judges(prompts["rank"], lines + _candidates(candidates))


def render_pick(
    prompts: Prompts, prompt: Sequence[Message], *, candidates: Sequence[str], golden_answers: Sequence[str] = ()
) -> tuple[Message, Message]:
    """The prompt for picking a better and a worse one of `candidates`, replies in the state of `prompt`."""
    question, _, seen = "\n".join(turn.content for turn in prompt[1:]).partition("\n")
    lines = [folded(question), *_golden(golden_answers)]
    if seen:
        lines.append(_reasoning([seen.removeprefix("Previous Thoughts: ")]))
    return _judges(prompts["pick"], lines + _candidates(candidates))


def render_answer(
    prompts: Prompts,
    *,
    question: str,
    thoughts: Sequence[str],
    answer: str,
    golden_answers: Sequence[str] = (),
    passages: Sequence[Passage] = (),
    rubric: Sequence[str] = (),
) -> tuple[Message, Message]:
    """The prompt for scoring an answer, the last of the `thoughts`, by a rubric if there is one."""
    lines = _known(question, golden_answers, passages)
    lines += [f"Criterion {number}: {one_line(each)}" for number, each in enumerate(rubric, start=1)]
    lines += [_reasoning(thoughts), f"Answer: {one_line(answer)}"]
    return _judges(prompts["rubric" if rubric else "answer"], lines)


def render_support(
    prompts: Prompts, question: str, sentences: Sequence[str], passages: Sequence[Passage]
) -> tuple[Message, Message]:
    """The prompt for finding the passages that support each sentence of an answer."""
    lines = [f"Sentence {number}: {one_line(each)}" for number, each in enumerate(sentences, start=1)]
    return _judges(prompts["support"], _known(question, (), passages) + lines)


def render_preference(prompts: Prompts, question: str, answers: Sequence[str]) -> tuple[Message, Message]:
    """The prompt for choosing the better one of two answers."""
    lines = [f"Candidate {number}: {one_line(each)}" for number, each in enumerate(answers, start=1)]
    return _judges(prompts["prefer"], _known(question, ()) + lines)


def render_writing(prompts: Prompts, passages: Sequence[Passage]) -> tuple[Message, Message]:
    """The prompt for writing a question that needs all of the passages."""
    return _judges(prompts["question"], _passages(passages))


def render_reading(prompts: Prompts, question: str, passages: Sequence[Passage]) -> tuple[Message, Message]:
    """The prompt for answering a question from passages alone, or from none."""
    return _judges(prompts["check"], _known(question, (), passages))


def _judges(system: str, lines: Sequence[str]) -> tuple[Message, Message]:
    shown = _TAGS_OF_JUDGES.sub(r"(\1\2)", "\n".join(lines))
    return Message(role="system", content=system), Message(role="user", content=shown)


def _known(question: str, golden_answers: Sequence[str], passages: Sequence[Passage] = ()) -> list[str]:
    """A judge's inputs besides the reasoning, a line each without line breaks: no text can imitate our line labels."""
    return [f"Question: {one_line(question)}", *_golden(golden_answers), *_passages(passages)]


def _passages(passages: Sequence[Passage]) -> list[str]:
    return [
        f"Passage {number}: {one_line(each.title)}: {one_line(each.text)}"
        for number, each in enumerate(passages, start=1)
    ]


def _golden(answers: Sequence[str]) -> list[str]:
    return [f"Correct answer: {' or '.join(one_line(each) for each in answers)}"] if answers else []


def _candidates(replies: Sequence[str]) -> list[str]:
    return [f"Candidate {number}: {as_thought(folded(each))}" for number, each in enumerate(replies, start=1)]


def _reasoning(thoughts: Sequence[str]) -> str:
    return f"Reasoning: {_join(map(folded, thoughts))}"


def document_lines(documents: Sequence[Passage]) -> list[str]:
    """Documents as agents and readers are shown them, numbered from 1."""
    found = enumerate(documents, start=1)
    return [f"Document [{number}] (Title: {one_line(each.title)}) {one_line(each.text)}" for number, each in found]


@lru_cache(maxsize=4096)  # siblings are shown the same
def inert(text: str) -> str:
    """Untrusted text that can neither open nor close our tags."""
    return _OUR_TAGS.sub(r"(\1\2)", plain_text(text))


def folded(text: str) -> str:
    """Text on one line, so that it cannot imitate our line labels."""
    return " ".join(text.split())


def one_line(text: str) -> str:
    """Untrusted text that can imitate no line of ours, and open and close no tag."""
    return inert(folded(text))


@lru_cache(maxsize=4096)
def as_thought(reply: str) -> str:
    """A reply as later turns see it: only with tags that its turn may use."""
    return _NO_TAGS_OF_THOUGHTS.sub(r"(\1\2)", plain_text(reply))


def _join(thoughts: Iterable[str]) -> str:
    return " ".join(map(as_thought, thoughts))
