"""The reasonrag.toml that `reasonrag init` writes: four answers become the settings of the commands that follow.

Decides which settings an answer becomes, and that no key gets into the file. Does not know how the answers are asked
for, nor the settings of the commands of later rooms: a test reads the file by each of them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from reasonrag.agent.recipe_file import DEFAULT_RECIPE
from reasonrag.data.documents.settings import CORPORA
from reasonrag.data.settings import ATLAS, HUB_SPLITS, QuestionSettings, canonical_dataset
from reasonrag.errors import choices
from reasonrag.files import RUN_HOME, data_set_of
from reasonrag.llm.settings import DEFAULT_TEACHER
from reasonrag.settings import Settings, setting

STUDENTS = {
    "qwen2.5-7b-dpo-lora": "LoRA, one GPU of 80 GB",
    "qwen2.5-7b-dpo-qlora": "4-bit LoRA, one GPU of 24 GB",
    "qwen2.5-7b-dpo-full": "all weights, four GPUs of 80 GB",
    "qwen2.5-7b-dpo-full-offload": "all weights, one GPU of 40 GB and 200 GB of memory",
}
"""Shipped configurations that train on pairs, with what their headers say they need."""
_TRAINED_ON = "train"
"""The split of a data set that pairs may come from."""


def teacher_and_address(answer: str) -> tuple[str, str | None]:
    """`NAME`, or `NAME at URL`. Raises ValueError."""
    name, _, address = (part.strip() for part in answer.partition(" at "))
    if not name or any(letter.isspace() for letter in name):
        raise ValueError("write the model's name, or NAME at URL for your own endpoint")
    if address:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError("the address must look like http://127.0.0.1:8000/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("the address may hold a key; leave it out, and put the key into OPENAI_API_KEY")
    return name, address or None


def data_and_corpus(answer: str) -> dict[str, str]:
    """`dataset` by its name, or the paths `questions` and, if given, `corpus`. Raises ValueError."""
    first, *rest = shlex.split(answer) or [""]
    name = canonical_dataset(first)
    if name == ATLAS and not rest:
        return {"dataset": name}
    if name in HUB_SPLITS and not rest:
        if _TRAINED_ON not in HUB_SPLITS[name]:
            raise ValueError(f"{name} has no training questions; its split {HUB_SPLITS[name][0]} is for evaluation")
        return {"dataset": name}
    if len(rest) > 1:
        raise ValueError("write one file of questions and one corpus, in quotes if a name has spaces")
    if not Path(first).is_file():
        known = [name for name, splits in HUB_SPLITS.items() if _TRAINED_ON in splits]
        raise ValueError(f"there is no file of this name, and no data set; {choices(first, [ATLAS, *known])}")
    for corpus in rest:
        if corpus != "wiki-18" and not Path(corpus).is_file():
            raise ValueError(
                f"there is no corpus {corpus}; reasonrag corpus build FOLDER --out {CORPORA / 'mine.jsonl'} makes one"
            )
    return {"questions": first} | ({"corpus": rest[0]} if rest else {})


def _checked(parse: Callable[[str], object]) -> AfterValidator:
    """Refuses an answer that cannot be parsed; control characters have no place in a settings file."""

    def check(answer: str) -> str:
        if not answer.strip():
            raise ValueError("this is empty")
        if not answer.isprintable():
            raise ValueError("this holds a control character")
        parse(answer)
        return answer.strip()

    return AfterValidator(check)


class InitSettings(Settings):
    """The four answers of `init`."""

    teacher: Annotated[str, _checked(teacher_and_address)] = setting(
        "Model that explores: a name of OpenAI's, NAME at URL for your own endpoint, or offline, which needs no key",
        default=DEFAULT_TEACHER,
    )
    dataset: Annotated[str, _checked(data_and_corpus)] = setting(
        'A data set (hotpotqa, 2wiki, musique, .., atlas), or your own files: "QUESTIONS.jsonl CORPUS.jsonl"',
        default="hotpotqa",
    )
    budget: float = setting("Dollars for the teacher; 0: no cap", default=20.0, ge=0)
    student: Annotated[str, _checked(str)] = setting(
        f"Training configuration: {'; '.join(f'{name} ({needs})' for name, needs in STUDENTS.items())}; or a YAML file",
        default=next(iter(STUDENTS)),
    )


def settings_file(*, teacher: str, dataset: str, budget: float, student: str) -> str:
    """The text of the file, with the next commands at its head. The parameters are the fields of InitSettings."""
    model, address = teacher_and_address(teacher)
    files = data_and_corpus(dataset)
    own = "questions" in files
    run = RUN_HOME / QuestionSettings.model_validate(files).named(DEFAULT_RECIPE)
    pairs = data_set_of(run)
    trained = f"saves/{run.name}"
    splits = HUB_SPLITS.get(files.get("dataset", ""), ("dev",))
    held_out = "dev" if "dev" in splits else "test"
    corpus = [_line("corpus", files["corpus"])] if "corpus" in files else []
    lines = [
        *_head(run, pairs),
        "[generate]",
        _line("model", model, "the teacher"),
        _line("base_url", [address])
        if address
        else '# base_url = ["http://127.0.0.1:8000/v1"]  # your own endpoint, for example vLLM',
        _line("questions", files["questions"]) if own else _line("dataset", [files["dataset"]]),
        *corpus,
        *(
            [
                '# outcome = "judge"  # if the questions have no gold answers',
                '# style = "long"  # for answers of whole sentences',
            ]
            if own
            else []
        ),
        _line("max_cost", budget, "dollars; the run stops before it costs more, and can be continued")
        if budget
        else "# max_cost = 20.0  # dollars; the run stops before it costs more, and can be continued",
        "",
        "[pairs]",
        _line("out", str(pairs)),
        '# format = ["sft"]  # also write this format, beside RAG_ProGuide',
        "",
        "[train]",
        _line("config", student, "the student and how it is trained; reasonrag doctor CONFIG plans its memory"),
        _line("data", str(pairs)),
        _line("out", trained),
        "",
        "[evaluate]",
        _line("model", trained, "the student"),
        *(
            ['# questions = "held-out.jsonl"  # questions that the student was not trained on', *corpus]
            if own
            else [_line("dataset", [files["dataset"]]), _line("split", held_out)]
        ),
        _line("run", f"evals/{run.name}"),
    ]
    return "\n".join(lines) + "\n"


def _head(run: Path, pairs: Path) -> list[str]:
    return [
        "# Settings of reasonrag, one table per command, written by reasonrag init. Flags and environment variables",
        "# (REASONRAG_MAX_COST=5) override them. More settings: reasonrag COMMAND --help-all; --max-cost is max_cost.",
        "# Keys do not belong in this file: the teacher's is read from OPENAI_API_KEY.",
        "#",
        "#   reasonrag generate --limit 100 --dry-run    estimates the cost of 100 questions, and sends nothing",
        "#   reasonrag generate --limit 100              explores them; continues where it stopped",
        f"#   reasonrag pairs {_word(run)}",
        f"#   reasonrag view {_word(pairs)}",
        "#   reasonrag train",
        "#   reasonrag evaluate",
        "",
    ]


def _line(name: str, value: str | float | list[str | None], comment: str = "") -> str:
    """A setting of TOML, whose strings are written like JSON's."""
    return f"{name} = {json.dumps(value, ensure_ascii=False)}{f'  # {comment}' if comment else ''}"


def _word(path: Path) -> str:
    return shlex.quote(str(path))
