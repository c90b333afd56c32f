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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

import orjson

from preference import AgentAction, Message
from preference.export.files import write_file
from preference.export.sanitize import plain_text
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import SHORT, AnswerStyle
from reasonrag.errors import InputError, choices
from reasonrag.files import link_out_of, read_small

_OF_EVERY_RUN = ("think", "read", "conclude", "repair", "vary", "judge", "rank")
"""Prompts that are part of every run's hash, used or not."""
PROMPT_NAMES = (*_OF_EVERY_RUN, "answer", "rubric", "pick", "short", "long", "begin")
OF_THE_AGENT = ("begin", "think", "read", "conclude", "short", "long", "repair")
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


@dataclass(frozen=True)
class Prompts:
    """System prompts by turn, the texts of the repair turn and of the turn that asks for a different step (vary), and
    the judges' system prompts: for steps judge (scores), rank and pick, for answers rubric and answer (no rubric).

    short, long: what stands at `STYLE`. begin: of the first turn, where that is another than think. style: of questions
    that name none.
    """

    think: str
    read: str
    conclude: str
    repair: str
    vary: str
    judge: str
    rank: str
    answer: str
    rubric: str
    pick: str
    short: str
    long: str
    begin: str | None = None
    style: AnswerStyle = SHORT

    def system(self, action: AgentAction, *, first: bool = False, style: AnswerStyle | None = None) -> str:
        """The system turn of a state. first: whether it is the first of its question."""
        begins = first and action == "think" and self.begin is not None
        return self.with_style(str(getattr(self, "begin" if begins else action)), style)

    def with_style(self, text: str, style: AnswerStyle | None = None) -> str:
        """A prompt with the instruction for answers of a style; None: the usual one."""
        return text.replace(STYLE, self.long if (style or self.style) == "long" else self.short)

    @property
    def has_styles(self) -> bool:
        """Whether the agent's prompts have a place for the style."""
        return any(STYLE in (getattr(self, name) or "") for name in ("begin", "think", "read", "conclude"))

    @property
    def hash(self) -> str:
        """Hash of the prompts that are part of every run, in 16 hexadecimal digits."""
        return self.hash_with()

    def hash_with(self, *also: str) -> str:
        """`hash` with other prompts that the run uses."""
        of_some = [*(["short", "long"] if self.has_styles else []), *(["begin"] if self.begin is not None else [])]
        texts = [getattr(self, name) for name in dict.fromkeys((*_OF_EVERY_RUN, *also, *of_some))]
        return hashlib.sha256(orjson.dumps(texts)).hexdigest()[:16]


def renderer_hash(prompts: Prompts) -> str:
    """Hash of everything that turns states into prompts, in 16 hexadecimal digits: system prompts, layout, sanitizing.

    Equal hashes mean that search, training data and evaluation show a model the same bytes in the same state.
    """
    probe = Passage(id="p", title="Title", text="Text.", score=1.0)
    hostile = " <|im_end|> </ reference > <query> <score> {{idx}} \x00\x07\r\n "
    thoughts = ("So the next query is <query>q</query>", "<evidence>e</evidence>")
    probes: list[tuple[AgentAction, tuple[str, ...], tuple[Passage, ...]]] = [
        ("think", (), ()),
        ("think", thoughts, ()),
        ("read", thoughts[:1], (probe, probe)),
        ("conclude", thoughts, ()),
        ("read", (hostile,), (Passage(id="h", title=hostile, text=hostile, score=0.0),)),
    ]
    question = f"Q? {hostile}"

    def rendered(style: AnswerStyle) -> list[list[str]]:
        return [
            [
                turn.content
                for turn in render_prompt(
                    prompts, action, question=question, thoughts=said, passages=passages, style=style
                )
            ]
            for action, said, passages in probes
        ]

    shown, long = rendered("short"), rendered("long")
    return hashlib.sha256(orjson.dumps(shown + (long if long != shown else []))).hexdigest()[:16]


def style_recorded(style: AnswerStyle) -> str | None:
    """The style as records have it: null, and absent, for short answers, as before there were others."""
    return None if style == SHORT else style


def style_identity(style: AnswerStyle) -> dict[str, str]:
    """The key of a configuration that decides answers; none for short ones."""
    return {} if style == SHORT else {"style": style}


def load_prompts(directory: Path | None = None, style: AnswerStyle = SHORT) -> Prompts:
    """The package's prompts, each replaced by `directory/<name>.txt` if that file exists.

    style: of answers, where a question names none. Raises InputError for a directory that is missing, has none of these
    files or has text files of other names, and for a style that its prompts have no place for.
    """
    texts = {
        name: resources.files("reasonrag").joinpath("prompts", f"{name}.txt").read_text("utf-8").strip()
        for name in PROMPT_NAMES
        if name != "begin"
    }
    if directory is not None:
        texts |= _own_prompts(directory)
    for name, place, what in (
        ("repair", "{detail}", "what was wrong with the reply"),
        ("vary", "{siblings}", "steps"),
    ):
        if place not in texts[name]:
            raise InputError(f"{name}.txt must contain {place}, the place for {what}")
    prompts = Prompts(**texts, style=style)
    if style != SHORT and not prompts.has_styles:
        raise InputError(
            f"--style {style} would change nothing: no prompt in {directory} has {STYLE}, the place for the answer "
            "instruction; write it there, or leave out --style"
        )
    return prompts


def save_prompts(prompts: Prompts, folder: Path, *, shared: bool = False) -> None:
    """Write what an agent is prompted with; loading it gives the same `renderer_hash`. An earlier folder is replaced
    as a whole. shared: files that other users may read, as a model's. Raises OSError."""
    scratch = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    styles = () if prompts.has_styles else ("short", "long")
    texts = {name: getattr(prompts, name) for name in OF_THE_AGENT if name not in styles}
    kept = {name: text for name, text in texts.items() if text is not None}
    exact = any(text != text.strip() or "\r" in text for text in kept.values())
    for name, text in kept.items():
        write_file(scratch / f"{name}.txt", (text if exact else f"{text}\n").encode(), shared=shared)
    if exact:
        write_file(scratch / LAYOUT, b'{"exact": true}\n', shared=shared)
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)


def prompts_beside(folder: Path) -> Path | None:
    """The folder of prompts that came with a data set or a model; None if there is none.

    Raises InputError where something in it is no plain file or a link out of `folder`, whose content would be sent to a
    model.
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


def _own_prompts(directory: Path) -> dict[str, str]:
    names = ", ".join(f"{name}.txt" for name in PROMPT_NAMES)
    if not directory.is_dir():
        raise InputError(f"--prompts {directory} is not a directory; give one with any of {names}")
    if not any(directory.glob("*.txt")) and not (directory / BASELINES).is_dir():
        raise InputError(f"--prompts {directory} has no prompt file; it may have any of {names}")
    return read_prompt_files(directory, PROMPT_NAMES, exact=(directory / LAYOUT).exists())


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
    """System and user turn of a state. `passages`: as they are shown, for read turns only. style: that the question
    names, if any."""
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
    return _continued(prompt, reply, prompts.repair.replace("{detail}", detail))


def render_variation(prompts: Prompts, prompt: Sequence[Message], *, said: Sequence[str]) -> tuple[Message, ...]:
    """The turn that asks for a different step: the prompt, the first sibling's reply, and all of them.

    said: replies of the siblings so far, at least one.
    """
    listed = "\n".join(f"- {plain_text(each)}" for each in dict.fromkeys(said))
    return _continued(prompt, said[0], prompts.vary.replace("{siblings}", listed))


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
    lines = [*_known(question, golden_answers), f"Reasoning: {_one_line(thoughts)}"]
    return _judges(prompts.judge, lines)


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
        lines.append(f"Reasoning: {_one_line(thoughts)}")
    return _judges(prompts.rank, lines + _candidates(candidates))


def render_pick(
    prompts: Prompts, prompt: Sequence[Message], *, candidates: Sequence[str], golden_answers: Sequence[str] = ()
) -> tuple[Message, Message]:
    """The prompt for picking a better and a worse one of `candidates`, replies in the state of `prompt`."""
    question, _, seen = prompt[-1].content.partition("\n")
    lines = [folded(question), *_golden(golden_answers)]
    if seen:
        lines.append(f"Reasoning: {_one_line([seen.removeprefix('Previous Thoughts: ')])}")
    return _judges(prompts.pick, lines + _candidates(candidates))


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
    lines += [f"Criterion {number}: {inert(folded(each))}" for number, each in enumerate(rubric, start=1)]
    lines += [f"Reasoning: {_one_line(thoughts)}", f"Answer: {inert(folded(answer))}"]
    return _judges(prompts.rubric if rubric else prompts.answer, lines)


def _judges(system: str, lines: Sequence[str]) -> tuple[Message, Message]:
    return Message(role="system", content=system), Message(role="user", content="\n".join(lines))


def _known(question: str, golden_answers: Sequence[str], passages: Sequence[Passage] = ()) -> list[str]:
    """A judge's inputs besides the reasoning, each on its own line without line breaks, so that no text can imitate our
    line labels."""
    shown = [
        f"Passage {number}: {inert(folded(each.title))}: {inert(folded(each.text))}"
        for number, each in enumerate(passages, start=1)
    ]
    return [f"Question: {inert(folded(question))}", *_golden(golden_answers), *shown]


def _golden(answers: Sequence[str]) -> list[str]:
    return [f"Correct answer: {' or '.join(inert(folded(each)) for each in answers)}"] if answers else []


def _candidates(replies: Sequence[str]) -> list[str]:
    return [f"Candidate {number}: {_one_line([each])}" for number, each in enumerate(replies, start=1)]


def _one_line(thoughts: Sequence[str]) -> str:
    return _join([folded(each) for each in thoughts])


@lru_cache(maxsize=4096)  # siblings are shown the same
def inert(text: str) -> str:
    """Untrusted text that can neither open nor close our tags."""
    return _OUR_TAGS.sub(r"(\1\2)", plain_text(text))


def folded(text: str) -> str:
    """Text on one line, so that it cannot imitate our line labels."""
    return " ".join(text.split())


@lru_cache(maxsize=4096)
def as_thought(reply: str) -> str:
    """A reply as later turns see it: only with tags that its turn may use."""
    return _NO_TAGS_OF_THOUGHTS.sub(r"(\1\2)", plain_text(reply))


def _join(thoughts: Sequence[str]) -> str:
    return " ".join(map(as_thought, thoughts))
