"""A trained model behind HTTP: what it replies is what transformers would reply, whoever else asks at the time.

The model is tiny, and real: made, merged and asked for reference by transformers and peft, in their environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from openai.types.chat import ChatCompletion

from preference import Message
from reasonrag import evaluate
from reasonrag.errors import InputError, ReasonragError, RunStopped
from reasonrag.llm.chat import ChatRequest, Sampling
from reasonrag.llm.endpoint.endpoint import EndpointModel, Limits
from reasonrag.model_folder import open_model
from reasonrag.serving.local_server import LocalServer, VllmOptions, served
from tests.reasonrag.serving.test_local_server import processes_about

ROOT = Path(__file__).parents[3]
PROMPTS = [
    "Who?",
    "Question: Which river flows through the capital of France?",
    "Question: Who wrote it?\nPrevious Thoughts: So the next query is <query>author</query>" * 4,
    "東京 Москва שלום <|im_end|> {{ x }}",
    "Paris lies on the Seine. " * 40,
    *(
        f"{'You answer questions step by step. ' * 8}Which river flows through {city}?{' So far.' * place}"
        for place, city in enumerate(["Paris", "Rome", "London", "Vienna", "Prague", "Cairo"])
    ),
]
CROWD = 24


@dataclass(frozen=True)
class Made:
    """Folders of models, and the base URL of the one that is served. replies: name of a model -> what transformers
    replies to PROMPTS: ids of the prompt, text, number of tokens. logprobs: of the tokens of `tiny`'s replies, by
    transformers. cast: how far logits of `tiny` cast to bfloat16 are from those of `tiny` loaded in it."""

    home: Path
    base_url: str
    replies: dict[str, list[tuple[list[int], str, int]]]
    logprobs: list[list[float]]
    cast: float


@pytest.fixture(scope="module")
def made(train_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    home = tmp_path_factory.mktemp("models")
    (home / "prompts.json").write_text(json.dumps(PROMPTS))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    script = [ROOT / "tests" / "helpers" / "served_models.py", home, home / "prompts.json", home / "replies.json"]
    command = [train_python, *map(str, script)]
    with (
        (home / "said.txt").open("w") as said,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=said, text=True) as server,
    ):
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.endswith("  (stop with Ctrl-C)\n"), line + (home / "said.txt").read_text()[-3000:]
        replies = json.loads((home / "replies.json").read_text())
        others = {name: replies.pop(name) for name in ("logprobs", "cast")}
        yield Made(home, line.split()[2], replies, **others)
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) == 0


@dataclass
class Client:
    session: ClientSession
    base_url: str

    async def post(self, body: object) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(f"{self.base_url}/chat/completions", data=data) as answer:
            return answer.status, await answer.json()

    async def ask(self, prompt: str, **parameters: object) -> dict[str, Any]:
        body = {"model": "tiny", "messages": [{"role": "user", "content": prompt}], "max_tokens": 24} | parameters
        status, answer = await self.post(body)
        assert status == 200, answer
        return answer


@asynccontextmanager
async def client_of(base_url: str) -> AsyncIterator[Client]:
    async with ClientSession() as session:
        yield Client(session, base_url)


def texts(answer: dict[str, Any]) -> list[str]:
    return [each["message"]["content"] for each in answer["choices"]]


def reasons(answer: dict[str, Any]) -> list[str]:
    return [each["finish_reason"] for each in answer["choices"]]


# -- the same replies ----------------------------------------------------------------------------------------------


async def test_at_temperature_0_many_at_once_get_what_generate_says_to_each(made: Made) -> None:
    """Prompts of very different lengths share the steps of the model, and some of them a beginning that is read once;
    each reply, and each prompt's number of tokens, is that of transformers' own `generate` for it alone."""
    async with client_of(made.base_url) as client:
        answers = await asyncio.gather(*(client.ask(each, temperature=0) for each in PROMPTS * 3))
    for answer, (ids, text, tokens) in zip(answers, made.replies["tiny"] * 3, strict=True):
        assert texts(answer) == [text]
        assert answer["usage"] == {
            "prompt_tokens": len(ids),
            "completion_tokens": tokens,
            "total_tokens": len(ids) + tokens,
        }
        assert reasons(answer) == ["length" if tokens == 24 else "stop"]
    assert len({text for _, text, _ in made.replies["tiny"]}) > 1
    assert {reason for answer in answers for reason in reasons(answer)} == {"length", "stop"}


def test_weights_are_cast_to_bfloat16_as_transformers_loads_them(made: Made) -> None:
    """Rotary positions keep their float32: cast as well, they moved every token that is far away."""
    assert made.cast == 0


async def test_the_same_seed_gives_the_same_reply_alone_and_in_a_crowd(made: Made) -> None:
    """What a reply depends on is its prompt, its parameters and its seed; other seeds reply otherwise."""
    parameters = [{"temperature": 1.0, "seed": 7}, {"temperature": 0.7, "top_p": 0.8, "seed": 8}]
    async with client_of(made.base_url) as client:
        alone = [texts(await client.ask(PROMPTS[1], **each)) for each in parameters]
        others = [client.ask(PROMPTS[i % 5], temperature=1.3, seed=100 + i, max_tokens=3 + i) for i in range(CROWD)]
        crowd = [client.ask(PROMPTS[1], **each) for each in parameters]
        answers = await asyncio.gather(*others[:12], crowd[0], *others[12:], crowd[1])
        seeds = await asyncio.gather(*(client.ask(PROMPTS[1], temperature=1.0, seed=i) for i in range(10)))
    assert [texts(answers[12]), texts(answers[-1])] == alone
    assert len({texts(each)[0] for each in seeds}) == 10


async def test_choices_are_seeded_one_after_the_other(made: Made) -> None:
    """Choice i of seed s is what seed s + i replies alone; all of them count as completion tokens."""
    async with client_of(made.base_url) as client:
        together = await client.ask(PROMPTS[0], temperature=1.0, seed=40, n=3)
        singly = [await client.ask(PROMPTS[0], temperature=1.0, seed=40 + i) for i in range(3)]
    assert (
        texts(together)
        == [texts(each)[0] for each in singly]
        == [each.message.content for each in ChatCompletion.model_validate(together, strict=True).choices]
    )
    assert [each["index"] for each in together["choices"]] == [0, 1, 2]
    made_tokens = sum(each["usage"]["completion_tokens"] for each in singly)
    assert together["usage"]["completion_tokens"] == made_tokens
    assert together["usage"]["prompt_tokens"] == singly[0]["usage"]["prompt_tokens"]


# -- where a reply ends --------------------------------------------------------------------------------------------


async def test_a_stop_string_ends_a_reply_and_is_dropped(made: Made) -> None:
    """Also where it lies across tokens; the first one in the text counts, and no more tokens are made than needed."""
    whole = next(text for _, text, tokens in made.replies["tiny"] if tokens == 24)
    prompt = PROMPTS[[text for _, text, _ in made.replies["tiny"]].index(whole)]
    one, other = whole[len(whole) // 3 :][:7], whole[len(whole) // 2 :][:9]
    first = min(whole.index(one), whole.index(other))
    async with client_of(made.base_url) as client:
        stopped = [await client.ask(prompt, temperature=0, stop=each) for each in (one, [one, other], [other, one])]
        unmoved = await client.ask(prompt, temperature=0, stop="never said")
    assert [texts(each) for each in stopped] == [[whole[: whole.index(one)]], [whole[:first]], [whole[:first]]]
    assert [reasons(each) for each in stopped] == [["stop"]] * 3
    assert all(each["usage"]["completion_tokens"] < 24 for each in stopped)
    assert texts(unmoved) == [whole]


async def test_without_a_limit_a_reply_goes_on_until_it_ends_by_itself(made: Made) -> None:
    """The token that ends a turn is not shown."""
    async with client_of(made.base_url) as client:
        answer = await client.ask(PROMPTS[0], temperature=1.0, seed=1, max_tokens=None)
    assert reasons(answer) == ["stop"]
    assert "<|im_end|>" not in texts(answer)[0]


# -- what is asked -------------------------------------------------------------------------------------------------

HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "the body is not JSON"),
        ([], "valid"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "role"),
        ({"messages": HELLO, "temperature": -1}, "temperature"),
        ({"messages": HELLO, "top_p": 0}, "top_p"),
        ({"messages": HELLO, "n": 0}, "n"),
        ({"messages": HELLO, "max_tokens": 0}, "max_tokens"),
        ({"messages": HELLO, "stop": ["x", ""]}, "stop"),
        ({"messages": HELLO, "seed": "x"}, "seed"),
        ({"messages": HELLO, "stream": True}, "stream"),
        ({"messages": [{"role": "user", "content": "word " * 40_000}]}, "takes 32,768"),
        ({"model": "teacher", "messages": HELLO}, "there is no model 'teacher' here; this serves 'tiny'"),
    ],
)
async def test_a_bad_request_is_refused_in_openais_shape(body: object, said: str, made: Made) -> None:
    """Status 400, or 404 for another model, and a message that names what is wrong."""
    async with client_of(made.base_url) as client:
        status, answer = await client.post(body)
    assert (status, answer["error"]["type"]) == (404 if "no model" in said else 400, "invalid_request_error")
    assert said in answer["error"]["message"]


async def test_it_works_with_our_client_and_tells_its_health(made: Made) -> None:
    """Unknown fields are ignored; our client checks it, gets all choices in one request, and real token counts."""
    model = EndpointModel("tiny", Limits(concurrency=8, timeout=30), base_urls=[made.base_url])
    request = ChatRequest(
        messages=(Message(role="system", content="Be brief."), Message(role="user", content="hello")),
        sampling=Sampling(temperature=1, top_p=0.9, max_tokens=8, stop=("</answer>",)),
        samples=(0, 1),
        seeds=(1, 2),
    )
    await model.check()
    first, second = await model.complete(request)
    probable = request.sampling.model_copy(update={"logprobs": True})
    [again] = await model.complete(replace(request.draws(0, 1), sampling=probable))
    assert "".join(each.text for each in again.logprobs or ()) == again.text == first.text
    await model.close()
    assert (first.requests, second.requests, first.tokens_bounded) == (1, 0, False)
    assert first.text != second.text
    async with client_of(made.base_url) as client:
        await client.ask("hello", max_tokens=1, logit_bias={}, user="me", response_format=None)
        async with client.session.get(made.base_url.removesuffix("/v1") + "/health") as answer:
            assert await answer.json() == {"status": "ok", "model": "tiny"}


async def test_log_probabilities_are_those_of_the_model_whatever_the_sampling(made: Made) -> None:
    """Those that transformers has for the whole reply at once; temperature and top_p change none of them. Bytes that
    make up a character are one token, and the tokens are the text."""
    likeliest = [{"temperature": 0}, {"temperature": 2.0, "top_p": 1e-9}]
    async with client_of(made.base_url) as client:
        asked = [client.ask(each, logprobs=True, **how) for how in likeliest for each in PROMPTS]
        answers = await asyncio.gather(*asked)
    alike = 0
    for answer, logprobs in zip(answers, made.logprobs * 2, strict=True):
        [choice] = answer["choices"]
        tokens = choice["logprobs"]["content"]
        assert "".join(each["token"] for each in tokens) == choice["message"]["content"]
        numbers = [each["logprob"] for each in tokens]
        assert sum(numbers) == pytest.approx(sum(logprobs), abs=1e-3)
        if len(numbers) == len(logprobs):
            assert numbers == pytest.approx(logprobs, abs=1e-4)
            alike += 1
    assert alike
    assert any(len(each) > 1 for each in made.logprobs)


async def test_who_goes_away_is_not_waited_for(made: Made) -> None:
    """A long reply that nobody wants leaves the others their steps: it ends with its request."""
    async with client_of(made.base_url) as client:
        long = client.ask(PROMPTS[0], temperature=5, seed=2, n=64, max_tokens=30_000)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(long, timeout=0.3)
        short = await asyncio.wait_for(client.ask(PROMPTS[1], temperature=0), timeout=20)
    assert texts(short) == [made.replies["tiny"][1][1]]


# -- for as long as it is needed -----------------------------------------------------------------------------------


async def use(
    folder: Path, say: Callable[[str], None], work: Callable[[LocalServer], Awaitable[None]] | None = None
) -> None:
    """A block around a server."""
    async with served(folder, say=say, vllm=VllmOptions(tensor_parallel=2)) as server:
        if work:
            await work(server)


async def test_an_adapter_is_served_as_the_merged_model_and_its_death_is_told(
    made: Made, train_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`served` finds an environment that can, tells where it listens, and replies as the merged model does. When the
    server dies, whoever waits inside the block is told, and nothing is left of it."""
    monkeypatch.setenv("REASONRAG_TRAIN_PYTHON", str(train_python))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    adapter, said, replies = made.home / "adapter", list[str](), list[str]()

    async def ask_and_kill(server: LocalServer) -> None:
        async with client_of(server.base_url) as client:
            answers = [await client.ask(each, temperature=0, model=server.name) for each in PROMPTS]
        replies.extend(text for each in answers for text in texts(each))
        os.kill(max(processes_about(adapter)), signal.SIGKILL)
        await asyncio.sleep(60)

    with pytest.raises(RunStopped, match=r"of adapter was killed by signal 9\..*\. Its last output:"):
        await use(adapter, said.append, ask_and_kill)
    assert replies == [text for _, text, _ in made.replies["merged"]]
    assert made.replies["merged"] != made.replies["tiny"]
    assert processes_about(adapter) == []
    assert "--tensor-parallel-size 2 is for vLLM, which does not serve here: left out" in said
    assert "adapter is served at http://127.0.0.1:" in said[-1]


def test_a_folders_model_is_served_for_as_long_as_it_is_asked(
    made: Made, train_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`evaluate --model FOLDER`: a tiny model with random weights answers over HTTP; when all is answered no server is
    started, and another model in the same folder is another one."""
    monkeypatch.setenv("REASONRAG_TRAIN_PYTHON", str(train_python))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    asked: dict[str, Any] = {"dataset": "atlas", "limit": 2, "model": str(made.home / "tiny"), "run": "evals/a"}
    asked |= {"max_reply_tokens": 8}
    report = evaluate(**asked)
    assert re.fullmatch(r"tiny@[0-9a-f]{12}", report.model)
    assert (report.answered, report.cost_usd) == (2, 0.0)
    assert report.usage.calls == 4  # a random reply and its repair
    assert report.metrics["no_answer"].value == 1.0
    monkeypatch.setenv("REASONRAG_TRAIN_PYTHON", "/nowhere/python")
    assert evaluate(**asked).metrics == report.metrics
    with pytest.raises(InputError, match=r"Changed: model was 'tiny@.*', is 'merged@"):
        evaluate(**asked | {"model": str(made.home / "merged")})


async def test_nothing_is_left_of_a_server_that_nobody_waits_for(
    made: Made, train_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled while it loads, as by Ctrl-C, it ends."""
    monkeypatch.setenv("REASONRAG_TRAIN_PYTHON", str(train_python))
    loading = asyncio.create_task(use(made.home / "merged", print))
    while not processes_about(made.home / "merged"):  # noqa: ASYNC110 - another process is waited for
        await asyncio.sleep(0.01)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert processes_about(made.home / "merged") == []


# -- what is no model ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (None, "is not there"),
        ({}, "neither config.json nor adapter_config.json"),
        ({"checkpoint-5/config.json": "{}"}, "There are models below it: checkpoint-5"),
        ({"config.json": "{}", "tokenizer.json": "{}"}, "model.safetensors"),
        ({"adapter_config.json": "{}"}, "adapter_model.safetensors"),
        ({"adapter_config.json": "[]", "adapter_model.safetensors": ""}, "does not hold a JSON object"),
        ({"config.json": "{}", "model.safetensors": ""}, "no tokenizer"),
        ({"config.json": "{}", "tokenizer.json": "{}", "training_args.bin": ""}, "no weights"),
    ],
)
def test_a_folder_that_is_no_model_says_what_is_missing(
    files: dict[str, str] | None, said: str, tmp_path: Path
) -> None:
    """Before anything is started."""
    folder = tmp_path / "model"
    for name, content in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    if files == {}:
        folder.mkdir()
    with pytest.raises(InputError, match=said):
        open_model(folder)


def test_a_model_whose_chat_template_never_ends_is_not_served(made: Made, train_python: Path, tmp_path: Path) -> None:
    """Exit status 2 and one sentence, which names the file, after the seconds that a template may take."""
    shutil.copytree(made.home / "tiny", tmp_path / "tiny")
    template = tmp_path / "tiny" / "chat_template.jinja"
    template.write_text("{% for each in range(99999) %}" * 3 + "{% endfor %}" * 3)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [train_python, "-m", "reasonrag.serving", template.parent]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(
        f"error: the chat template {template} takes more than 2 s or 512 MiB"
    )


def test_without_an_environment_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python without torch is no server; one that lacks another package says so in its last words."""
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("REASONRAG_TRAIN_PYTHON", "/nowhere/python")
    with pytest.raises(InputError, match=r"has no torch\. REASONRAG_TRAIN_PYTHON: there is no /nowhere/python; .*vllm"):
        asyncio.run(use(tmp_path, print))
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    monkeypatch.setenv("REASONRAG_TRAIN_PYTHON", str(bare / "bin" / "python"))
    with pytest.raises(ReasonragError, match=r"(?s)ended with status 1\. Its last output:.*No module named"):
        asyncio.run(use(tmp_path, print))
