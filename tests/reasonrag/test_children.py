"""Processes that commands start: each gets what it needs, and no key that is not for it.

Every child is a real one. Where a program would load torch, a script stands in its place that notes its environment.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from preference import Message
from reasonrag.data.documents.reader import DocumentReader
from reasonrag.errors import ReasonragError
from reasonrag.processes.bounded import BoundedProcess
from reasonrag.serving.chat_template import ChatTemplate
from reasonrag.serving.local_server import served
from reasonrag.training.llamafactory.foreign_settings import tokens_for
from reasonrag.training.llamafactory.inspection import inspect_environment
from reasonrag.training.llamafactory.launcher import run_child
from tests.helpers.qwen_files import folder_with

SECRETS = {
    **dict.fromkeys(("OPENAI_API_KEY", "OPENAIKEY", "ANTHROPIC_API_KEY", "REASONRAG_RETRIEVER_TOKEN"), "open-sesame.1"),
    **dict.fromkeys(
        ("HF_TOKEN", "HFTOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "COMET_API_KEY"), "open-sesame.2"
    ),
    **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD"), "open-sesame.3"),
    **dict.fromkeys(("GOOGLE_APPLICATION_CREDENTIALS", "MYSQL_PWD", "GITHUB_PAT", "openai_api_key"), "open-sesame.4"),
    **dict.fromkeys(("OPENAI_API_KEY_PERSONAL", "TOKEN_OPENAI", "DBPASS", "MY_CREDS", "SENTRY_DSN"), "open-sesame.7"),
    "DATABASE_URL": "postgres://me:open-sesame.5@host/db",
    "OF_NO_TELLING_NAME": "sk-proj-aB3d9aB3d9aB3d9aB3d9",
}
NEEDED = {
    "HF_HOME": "/cache",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "WANDB_PROJECT": "mine",
    "AWS_REGION": "eu-west-1",
    "TOKENIZERS_PARALLELISM": "false",
    "MAX_TOKENS": "100000",
    **dict.fromkeys(("MONKEY", "VLLM_MAX_TOKENS", "COMPASS_DIR", "SSH_AUTH_SOCK", "KEYBOARD_LAYOUT"), "open-sesame.42"),
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "https_proxy": "http://me:open-sesame.6@proxy:1",
}
HUB = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}
NOTES = "#!/bin/sh\ntr '\\0' '\\n' < /proc/$$/environ > {place}\nexit 1\n"
pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads what Linux says of processes")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (SECRETS | NEEDED).items():
        monkeypatch.setenv(name, value)


def names_in(place: Path) -> set[str]:
    content = place.read_bytes().replace(b"\n", b"\0").decode()
    return {line.partition("=")[0] for line in content.split("\0") if "=" in line}


def script(place: Path, name: str) -> Path:
    """A program that notes its environment in `noted`."""
    place.mkdir(exist_ok=True)
    (place / name).write_text(NOTES.format(place=place / "noted"))
    (place / name).chmod(0o755)
    return place / name


def environment_of(bounded: BoundedProcess) -> Path:
    assert bounded._process is not None
    return Path(f"/proc/{bounded._process.pid}/environ")


async def reads_documents(place: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:  # noqa: ARG001
    (place / "a.md").write_text("# A\n\ntext")
    reader = DocumentReader(place, max_chars=200)
    try:
        reader.read("a.md")
        return names_in(environment_of(reader._process))
    finally:
        reader.close()


async def renders_chats(place: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:  # noqa: ARG001
    pytest.importorskip("transformers")
    template = ChatTemplate(str(folder_with("<go>", place / "model")))
    try:
        await template.prompt([Message(role="user", content="hello")])
        return names_in(environment_of(template._process))
    finally:
        template.close()


async def inspects(place: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:  # noqa: ARG001
    with pytest.raises(ReasonragError, match="cannot inspect"):
        inspect_environment(script(place, "python"), {})
    return names_in(place / "noted")


async def trains(place: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:  # noqa: ARG001
    return after_training(place)


async def serves(place: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    script(place, "vllm")
    (place / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: H100'\n")
    (place / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(place), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    (place / "model").mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (place / "model" / name).write_text("{}")
    async with ended(place / "model"):
        return names_in(place / "noted")


@asynccontextmanager
async def ended(folder: Path) -> AsyncIterator[None]:
    with contextlib.suppress(ReasonragError):
        async with served(folder, say=lambda _: None):
            pass
    yield


Child = Callable[[Path, pytest.MonkeyPatch], Awaitable[set[str]]]
CHILDREN: list[Child] = [reads_documents, renders_chats, inspects, trains, serves]


@pytest.mark.parametrize("child", CHILDREN, ids=[each.__name__ for each in CHILDREN])  # type: ignore[attr-defined]
async def test_a_child_gets_no_key_and_everything_else(
    child: Child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By names of services, of databases and of clouds, with underscores and without, and by the shape of a value."""
    seen = await child(tmp_path, monkeypatch)
    assert not seen & SECRETS.keys()
    assert seen >= NEEDED.keys() - {"CUDA_VISIBLE_DEVICES"}


def after_training(place: Path, *tokens: str) -> set[str]:
    status = run_child(
        [str(script(place, "trainer"))],
        python=Path(sys.executable),
        environment={},
        log=place / "log",
        last=deque(),
        tick=lambda: None,
        tokens=tokens,
    )
    assert status == 1
    return names_in(place / "noted")


TRAININGS: dict[str, tuple[dict[str, object], set[str]]] = {
    "of a folder": ({"model_name_or_path": "here"}, set()),
    "of a model on the Hub, which may be gated": ({"model_name_or_path": "Qwen/Qwen2.5-7B-Instruct"}, HUB),
    "with an adapter in a folder": ({"model_name_or_path": "here", "adapter_name_or_path": "here,here"}, set()),
    "that is pushed": ({"model_name_or_path": "here", "push_to_hub": True}, HUB),
    "that reports to two": (
        {"model_name_or_path": "here", "report_to": ["comet_ml", "wandb"]},
        {"COMET_API_KEY", "WANDB_API_KEY"},
    ),
    "that reports to a service that is none": ({"model_name_or_path": "here", "report_to": "openai"}, set()),
}


@pytest.mark.parametrize(("config", "needed"), TRAININGS.values(), ids=list(TRAININGS))
def test_a_training_gets_the_one_token_that_it_needs(
    config: dict[str, object], needed: set[str], tmp_path: Path
) -> None:
    """Of the Hub where it downloads or pushes, of a service where it reports."""
    Path("here").mkdir()
    seen = after_training(tmp_path, *tokens_for(config))
    assert seen & SECRETS.keys() == needed
    assert os.environ["OPENAI_API_KEY"]
