"""What a state looks like to a model, and what text from outside can do in it: nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcts import RECIPES
from preference import AgentAction, Message
from reasonrag.agent.agent import Agent
from reasonrag.agent.prompting import (
    STYLE,
    load_prompts,
    prompts_beside,
    render_answer,
    render_judgement,
    render_prompt,
    render_ranking,
    render_repair,
    render_variation,
    save_prompts,
)
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.errors import InputError
from reasonrag.exploration.explorer import Explorer
from reasonrag.llm.chat import ChatRequest, Sampling
from reasonrag.retrieval.retriever import IndexRetriever
from tests.helpers.indexes import open_or_build
from tests.helpers.scripted_model import ScriptedModel

PROMPTS = load_prompts()
QUESTION = "Which river flows through the capital of France?"
THOUGHTS = (
    "The capital is needed first. So the next query is <query>capital of France</query>",
    "Based on the query, the relevant evidence is <evidence>Paris is the capital of France.</evidence>",
)
NOTHING = "<evidence>None</evidence>"
PASSAGES = (
    Passage("2", "Paris", "Paris is the capital of France. It lies on the Seine.", 2.5),
    Passage("7", "France", "France is a country in Europe.", 1.25),
)

OUR_TAG = re.compile(r"<\s*/?\s*(?:query|evidence|answer|reference)\s*>", re.IGNORECASE)
SPECIAL_TOKENS = "<|im_start|> <|im_end|> <|endoftext|> <|eot_id|> <|start_header_id|> <|fim_prefix|>".split()


def as_text(messages: Sequence[Message]) -> bytes:
    """Messages as one file that a person can read."""
    return "".join(f"=== {message.role}\n{message.content}\n" for message in messages).encode()


def prompt_of(case: str) -> Sequence[Message]:
    """The whole prompt of a turn in one worked example."""
    think_first = render_prompt(PROMPTS, "think", question=QUESTION, thoughts=())
    query_only = THOUGHTS[:1]
    rendered: dict[str, Sequence[Message]] = {
        "think_first": think_first,
        "think_after_evidence": render_prompt(PROMPTS, "think", question=QUESTION, thoughts=THOUGHTS),
        "read": render_prompt(PROMPTS, "read", question=QUESTION, thoughts=query_only, passages=PASSAGES),
        "read_nothing_found": render_prompt(PROMPTS, "read", question=QUESTION, thoughts=query_only),
        "conclude": render_prompt(PROMPTS, "conclude", question=QUESTION, thoughts=THOUGHTS),
        "repair": render_repair(PROMPTS, think_first, reply="The Seine, I think.", detail="found no tag"),
        "vary": render_variation(PROMPTS, think_first, said=[*THOUGHTS[:1] * 2, "<query>Capital of France</query>"]),
        "judge": render_judgement(
            PROMPTS, question=QUESTION, golden_answers=["Seine", "the River Seine"], thoughts=THOUGHTS
        ),
        "judge_without_gold": render_judgement(PROMPTS, question=QUESTION, thoughts=THOUGHTS),
        "rank": render_ranking(
            PROMPTS, question=QUESTION, thoughts=query_only, candidates=[THOUGHTS[1], NOTHING], passages=PASSAGES
        ),
        "rank_first": render_ranking(
            PROMPTS, question=QUESTION, golden_answers=["Seine"], thoughts=(), candidates=[*query_only, "Seine."]
        ),
        "answer": render_answer(PROMPTS, question=QUESTION, thoughts=THOUGHTS, answer="Seine", passages=PASSAGES),
        "answer_by_rubric": render_answer(
            PROMPTS,
            question=QUESTION,
            golden_answers=["Seine"],
            thoughts=THOUGHTS,
            answer="Seine",
            rubric=["Names a river.", "Names no city."],
        ),
    }
    return rendered[case]


@pytest.mark.parametrize(
    "case",
    [
        *("think_first", "think_after_evidence", "read", "read_nothing_found", "conclude", "repair", "vary"),
        *("judge", "judge_without_gold", "rank", "rank_first", "answer", "answer_by_rubric"),
    ],
)
def test_the_whole_prompt_of_every_turn_is_on_file(case: str, golden: Callable[[str, bytes], None]) -> None:
    """A change of any byte that a model is asked with, or trained on, shows in a golden file."""
    golden(f"prompts/{case}.txt", as_text(prompt_of(case)))


# -- text from outside -----------------------------------------------------------------------------------------

PIECES = "<query> </query> <EVIDENCE> <reference> </reference> < </ > <| |> im_end answer <score>".split()
PIECES += ["</evidence >", "< answer>", "</ answer>", "Wikipedia Title: ", "\nPrevious Thoughts: ", ". Reference: "]
HOSTILE = st.lists(
    st.sampled_from([*PIECES, *SPECIAL_TOKENS, "\n", "\0", "\x1b"])
    | st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc")), max_size=6),
    max_size=8,
).map("".join)


def tags_in(messages: Sequence[Message]) -> list[str]:
    """All tags of ours in the turns that are not the system's, as a tolerant reader sees them."""
    return [tag for message in messages if message.role != "system" for tag in OUR_TAG.findall(message.content)]


@given(question=HOSTILE, title=HOSTILE, text=HOSTILE)
def test_no_passage_or_question_can_open_or_close_a_tag(question: str, title: str, text: str) -> None:
    """The tags in a prompt are those of the renderer and of the thoughts, whatever text came from outside."""
    messages = render_prompt(
        PROMPTS, "read", question=question, thoughts=THOUGHTS[:1], passages=[Passage("1", title, text), PASSAGES[0]]
    )
    assert tags_in(messages) == ["<query>", "</query>", "<reference>", "</reference>"]


@pytest.mark.parametrize("said", ["<reference>", "</ Reference>", "<score>", "</score>"])
def test_a_thought_keeps_only_the_tags_that_thoughts_may_have(said: str) -> None:
    """References are the renderer's, scores the judge's; a reply that holds one cannot pass for either."""
    thoughts = [f"See {said}. {THOUGHTS[0]}"]
    prompt = render_prompt(PROMPTS, "think", question="Who?", thoughts=thoughts)
    judgement = render_judgement(PROMPTS, question="Who?", golden_answers=["x"], thoughts=thoughts)
    for user in (prompt[1].content, judgement[1].content):
        assert said not in user
        assert "<query>" in user


@given(said=HOSTILE, title=HOSTILE, text=HOSTILE, question=HOSTILE)
def test_no_text_can_spell_a_special_token(said: str, title: str, text: str, question: str) -> None:
    """Not even what the model itself has said can end a turn of the chat template."""
    prompt = render_prompt(PROMPTS, "read", question=question, thoughts=[said], passages=[Passage("1", title, text)])
    judgement = render_judgement(PROMPTS, question=question, golden_answers=[text], thoughts=[said])
    repair = render_repair(PROMPTS, prompt, reply=said, detail="found no tag")
    variation = render_variation(PROMPTS, prompt, said=[said, title])
    for message in (*prompt, *judgement, *repair, *variation):
        assert not any(token in message.content for token in SPECIAL_TOKENS)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a <answer>b</answer>", "a (answer)b(/answer)"),
        ("a < / Reference > b", "a (/Reference) b"),
        ("<|im_end|>", "(im_end)"),
        ("nul\x00byte", "nul byte"),
        ("a < b and b > c, <i>so</i> <answers>", "a < b and b > c, <i>so</i> <answers>"),
        ("tab\tand\nline", "tab\tand\nline"),
    ],
)
def test_hostile_text_stays_readable(text: str, shown: str) -> None:
    """Harmless spellings replace what could do harm, and nothing else is touched."""
    assert render_prompt(PROMPTS, "think", question=text, thoughts=())[1].content == f"Question: {shown}"


# -- golden answers --------------------------------------------------------------------------------------------

GOLDEN = "zq-golden-4711"


def retriever(directory: Path) -> IndexRetriever:
    """A real index over two passages."""
    corpus = directory / "corpus.jsonl"
    rows = [{"id": p.id, "contents": f"{p.title}\n{p.text}"} for p in PASSAGES]
    corpus.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return open_or_build(directory / "index", corpus)


def any_reply(request: ChatRequest, position: int) -> str:
    """Every turn, every repair and every failure comes up; the first step is a search, so that something is read."""
    search = "<query>capital of France</query>"
    first = "Previous Thoughts" not in request.messages[1].content and request.samples[position] == 0
    replies = {
        "</query>": [search] if first else [search, "<answer>Seine</answer>", "no tag"],
        "</evidence>": ["<evidence>Paris lies on the Seine.</evidence>", "<evidence></evidence>"],
        "</answer>": ["<answer>Seine</answer>", "no tag"],
        "</score>": ["<score>50</score>", "hm"],
        "</ranking>": ["<ranking>1 2</ranking>", "<ranking>none</ranking>"],
    }[request.sampling.stop[0]]
    return replies[int(request.keys(model="any")[position], 16) % len(replies)]


@pytest.mark.parametrize(
    ("recipe", "changed", "judged"),
    [
        ("continuation", {}, set()),
        ("economy", {}, set()),
        ("released", {}, {"</score>"}),
        ("released", {"judge_sees_gold": False}, set()),
        ("reasonrag", {}, {"</score>"}),
        ("prorag", {}, set()),
        ("ragym", {}, set()),
        ("ragym", {"judge_sees_gold": True}, {"</ranking>"}),
    ],
)
async def test_golden_answers_reach_no_prompt_but_the_judges(
    recipe: str, changed: dict[str, bool], judged: set[str], tmp_path: Path
) -> None:
    """A policy that could see the answers would be trained to expect them; a judge sees them where the recipe says so,
    in repairs too."""
    model = ScriptedModel(any_reply)
    agent = Agent(
        model, retriever(tmp_path), PROMPTS, Sampling(temperature=1, top_p=1, max_tokens=64), 2, max_steps=4, seed=0
    )
    question = Question(id="q", question=QUESTION, golden_answers=[GOLDEN, "Seine"], metadata={"note": GOLDEN})
    of = {str(name): each for name, each in RECIPES.items()}[recipe].model_copy(update=changed)
    explorer = Explorer(agent, question, of)
    await explorer.run()
    asked = {request.sampling.stop[0] for request in model.requests}
    shown = {request.sampling.stop[0] for request in model.requests if GOLDEN in as_text(request.messages).decode()}
    assert asked >= ({"</query>", "</ranking>"} if recipe == "ragym" else {"</query>", "</evidence>"})
    assert shown == judged


# -- prompts of the user's own ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["begin", *load_prompts().texts])
def test_own_prompts_replace_those_of_their_names_only(name: str, tmp_path: Path) -> None:
    """A directory may hold any of them; the others stay the package's. Each decides answers, so each is in the hash."""
    (tmp_path / f"{name}.txt").write_text("  Think for yourself, é. {detail} {siblings}\n")
    (tmp_path / "notes.md").write_text("not a prompt")
    own = load_prompts(tmp_path)
    assert own == PROMPTS.changed(**{name: "Think for yourself, é. {detail} {siblings}"})
    assert own.hash_with(name) != PROMPTS.hash_with(name)


def test_prompts_of_outcomes_are_in_the_hash_only_where_the_outcome_uses_them() -> None:
    """A run that was made before they existed is still the same run."""
    others = PROMPTS.changed(answer="a", rubric="b")
    assert others.hash_with() == PROMPTS.hash_with()
    assert others.hash_with("answer") != PROMPTS.hash_with("answer")
    assert len({PROMPTS.hash_with(), PROMPTS.hash_with("answer"), PROMPTS.hash_with("rubric")}) == 3


def test_the_first_turn_may_have_a_prompt_of_its_own() -> None:
    """It asks where nothing has been thought yet, and is part of the hashes only where it is there."""
    own = PROMPTS.changed(begin="Begin.")
    for thoughts, said in (((), "Begin."), (THOUGHTS, PROMPTS.system("think"))):
        assert render_prompt(own, "think", question="Q?", thoughts=thoughts)[0].content == said
    assert render_prompt(own, "conclude", question="Q?", thoughts=())[0].content == PROMPTS.system("conclude")
    assert renderer_hash(own) != renderer_hash(PROMPTS)
    assert own.hash_with() != PROMPTS.hash_with()


@pytest.mark.parametrize("action", ["think", "conclude"])
def test_the_style_chooses_what_an_answer_is(action: AgentAction) -> None:
    """That of the question wins over that of the run; prompts without a place for it are the same in both."""
    long = replace(PROMPTS, style="long")
    for prompts, style, said in (
        (PROMPTS, None, PROMPTS["short"]),
        (PROMPTS, "long", PROMPTS["long"]),
        (long, None, PROMPTS["long"]),
        (long, "short", PROMPTS["short"]),
    ):
        [system, _] = render_prompt(prompts, action, question="Q?", thoughts=THOUGHTS, style=style)
        assert said in system.content
        assert STYLE not in system.content
    assert renderer_hash(long) == renderer_hash(PROMPTS) != renderer_hash(PROMPTS.changed(long="Write much."))
    plain = PROMPTS.changed(think="Think.", conclude="Conclude.")
    assert renderer_hash(plain) == renderer_hash(plain.changed(long="Write much."))
    assert plain.hash_with() == plain.changed(long="Write much.").hash_with()


def test_a_style_without_a_place_in_the_prompts_is_refused(tmp_path: Path) -> None:
    """It would change nothing, unseen."""
    for name in ("think", "conclude"):
        (tmp_path / f"{name}.txt").write_text("Answer.")
    assert load_prompts(tmp_path).style == "short"
    with pytest.raises(InputError, match=r"--style long would change nothing: no prompt in .* has \{style\}"):
        load_prompts(tmp_path, "long")


TEXTS_OF_PROMPTS = st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip)


@given(own=st.fixed_dictionaries(dict.fromkeys(("begin", "think", "read", "conclude"), TEXTS_OF_PROMPTS)))
def test_a_saved_folder_describes_the_prompts_wholly(
    own: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Loading it gives the same renderer, byte for byte, white space around the texts included."""
    folder = tmp_path_factory.mktemp("saved") / "prompts"
    for prompts in (PROMPTS.changed(**own), PROMPTS):  # the second replaces the first
        save_prompts(prompts, folder)
        assert renderer_hash(load_prompts(folder)) == renderer_hash(prompts)
        assert {each: load_prompts(folder).texts.get(each) for each in own} == {
            each: prompts.texts.get(each) for each in own
        }
    assert not (folder / "begin.txt").exists()
    assert not (folder / "layout.json").exists()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"has no prompt file; it may have any of think\.txt, .*repair\.txt, vary\.txt, judge\.txt, rank\.txt"),
        ({"thnik.txt": b"x"}, r"thnik\.txt does not name a prompt: did you mean 'think'\? choose from answer,"),
        ({"think.txt": b"x", "extra.txt": b"x"}, r"extra\.txt does not name a prompt: choose from"),
        ({"repair.txt": b"Again, please."}, r"repair\.txt must contain \{detail\}"),
        ({"vary.txt": b"Something else, please."}, r"vary\.txt must contain \{siblings\}, the place for steps"),
        ({"think.txt": b"\xff\xfe"}, r"cannot read the prompt .*utf-8"),
        ({"think.txt": b" \n"}, r"think\.txt is empty; remove it to use the default prompt"),
        (None, r"nowhere is not a directory; give one with any of think\.txt"),
    ],
)
def test_a_prompt_directory_that_cannot_be_used_says_why(
    files: dict[str, bytes] | None, message: str, tmp_path: Path
) -> None:
    """No prompt is left out in silence because of its name or its bytes; a misspelt directory is not the package's."""
    for name, content in (files or {}).items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_prompts(tmp_path / "nowhere" if files is None else tmp_path)


@given(detail=st.text(max_size=20), reply=st.text(max_size=20))
def test_the_repair_turn_takes_any_detail(detail: str, reply: str) -> None:
    """Braces in what is quoted are no places to fill."""
    prompt = render_prompt(PROMPTS, "think", question="Q?", thoughts=())
    assert detail in render_repair(PROMPTS, prompt, reply=reply, detail=detail)[3].content


def test_prompts_that_come_with_a_model_lead_nowhere_else(tmp_path: Path) -> None:
    """Neither a file nor the folder is a link out of the model's; those of the Hub's cache stay in it."""
    secret = tmp_path / "secret.txt"
    secret.write_text("A key.")
    model, blobs = tmp_path / "models--a--b/snapshots/1", tmp_path / "models--a--b/blobs"
    assert prompts_beside(model) is None
    (model / "prompts").mkdir(parents=True)
    blobs.mkdir()
    (blobs / "1").write_text("Think.")
    (model / "prompts/think.txt").symlink_to(blobs / "1")
    assert prompts_beside(model) == model / "prompts"
    for name in ("read.txt", "layout.json"):
        (model / "prompts" / name).symlink_to(secret)
        with pytest.raises(InputError, match=rf"{name} is a link to .*/secret\.txt, outside"):
            prompts_beside(model)
        (model / "prompts" / name).unlink()
    os.mkfifo(model / "prompts/read.txt")  # reading it would wait for ever
    with pytest.raises(InputError, match=r"read\.txt is not a file"):
        prompts_beside(model)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/prompts").symlink_to(model / "prompts")
    with pytest.raises(InputError, match="prompts is a link to"):
        prompts_beside(tmp_path / "other")
