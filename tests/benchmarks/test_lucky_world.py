"""The world with lucky answers: luck is as large as it says, and every answer follows from its gold passages."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from gold_teacher import GoldQuestion, Skill, World, open_world
from loop_student import WORDS
from loop_world import article
from lucky_world import CENTURIES, LUCK, SHARES, YEARS_APART, Exchanger, Size, write_world

from preference import f1_score
from reasonrag.data.questions import Question, open_questions
from reasonrag.llm.extraction.habits import sentences
from tests.helpers.trees import rows

SMALL = Size(towns=30, people=60, works=80, organisations=20)
SPLITS = {"warmup": 300, "explore": 100, "dev": 50, "heldout": 200}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("lucky") / "world"
    write_world(place, SMALL, SPLITS, seed=0)
    return place


@pytest.fixture(scope="module")
def world(folder: Path) -> World:
    return open_world(folder, folder.parent / "indexes")


def asked(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    every = [each for split in SPLITS for each in rows(folder / f"{split}.jsonl")]
    return [each for each in every if kind in (None, each["metadata"]["type"])]


def test_every_split_has_all_kinds_by_their_shares(folder: Path) -> None:
    """Between 40 and 50 % of the questions name their possible answers."""
    assert 0.4 <= sum(SHARES.get(kind, 0) for kind in LUCK) <= 0.5
    assert sum(SHARES.values()) == pytest.approx(1)
    for split, count in SPLITS.items():
        kinds = Counter(each["metadata"]["type"] for each in rows(folder / f"{split}.jsonl"))
        assert kinds.total() == count
        assert all(abs(kinds[kind] - share * count) < 1 for kind, share in SHARES.items())


def test_another_telling_has_the_same_things_with_other_facts_and_asks_what_is_not_asked_here(
    folder: Path, tmp_path: Path
) -> None:
    """Rivers, years, occupations and genres differ; who is whose teacher, and who lives where, does not."""
    here = {each["question"] for each in asked(folder)}
    write_world(
        tmp_path, SMALL, {"warmup": 100}, seed=0, told=1, but=here, shares={"3 hops": 0.5, "choice of two": 0.5}
    )
    found = rows(tmp_path / "warmup.jsonl")
    assert Counter(each["metadata"]["type"] for each in found) == {"3 hops": 50, "choice of two": 50}
    assert {len(each["metadata"]["guesses"]) for each in found if " or " in each["question"]} == {2}
    assert not here & {each["question"] for each in rows(tmp_path / "warmup.jsonl")}
    told, other = ([each["contents"] for each in rows(place / "corpus.jsonl")] for place in (folder, tmp_path))
    assert [each.partition("\n")[0] for each in told] == [each.partition("\n")[0] for each in other]
    of_teachers = [re.findall(r"The (?:teacher|home) of .*?\.", each) for each in told]
    assert of_teachers == [re.findall(r"The (?:teacher|home) of .*?\.", each) for each in other]
    rivers = [
        (re.findall(r"river (\w+)", one), re.findall(r"river (\w+)", two)) for one, two in zip(told, other, strict=True)
    ]
    differ = [one != two for one, two in rivers if one]
    assert sum(differ) > 0.8 * len(differ)


def test_the_same_is_told_of_others_in_words_that_agree(folder: Path) -> None:
    """A name is exchanged for one of its kind, the same everywhere; a year and its century agree, and articles fit."""
    texts = [each["contents"] for each in rows(folder / "corpus.jsonl")]
    exchanger = Exchanger(SMALL, seed=0)
    told = list(map(exchanger.drawn(random.Random(0)), texts))
    assert told != texts != list(map(exchanger.drawn(random.Random(1)), texts)) != told
    titles, others = ([each.partition("\n")[0] for each in kind] for kind in (texts, told))
    assert {*titles} == {*others} <= {*exchanger.names}
    to = dict(zip(titles, others, strict=True))
    for text, other in zip(texts, told, strict=True):
        for named in (name for name in titles if re.search(rf"\b{name}\b", text)):
            assert to[named] in other
        for year, century in re.findall(r"founded in (\d+), in the (\w+) century", other):
            assert CENTURIES[int(year) // 100] == century
        for a, noun in re.findall(r" (?:was|is) (an?) (\w+)", other):
            assert f"{a} {noun}" == article(noun)


@pytest.mark.parametrize("kind", sorted(LUCK.keys() & SHARES.keys()))
def test_who_guesses_among_the_options_is_right_as_often_as_luck_says(kind: str, folder: Path) -> None:
    """In truth, within four standard errors; and no place among the options is right more often than others."""
    questions, dice = asked(folder, kind), random.Random(0)
    golden = [each["golden_answers"][0] for each in questions]
    options = [each["metadata"]["guesses"] for each in questions]
    error = 4 * (LUCK[kind] * (1 - LUCK[kind]) / len(questions)) ** 0.5
    right = [dice.choice(offered) == answer for offered, answer in zip(options, golden, strict=True)]
    assert sum(right) / len(right) == pytest.approx(LUCK[kind], abs=error)
    first = [offered[0] == answer for offered, answer in zip(options, golden, strict=True)]
    assert sum(first) / len(first) == pytest.approx(LUCK[kind], abs=error)


def test_the_golden_answer_is_one_of_the_options_and_shares_no_word_with_the_others(folder: Path) -> None:
    """So that a wrong guess gets no F1. The question is no multiple choice, which would be asked with its options."""
    for each in asked(folder):
        assert Question.model_validate(each).question == each["question"]
        options, (answer,) = each["metadata"]["guesses"], each["golden_answers"]
        assert len(set(options)) == len(options)
        assert answer in options
        assert all(f1_score(other, [answer]) == 0 for other in options if other != answer)


def test_a_chain_leads_from_the_question_to_what_its_last_passage_says(folder: Path) -> None:
    """Each gold passage names the next one; the question names the first, and not what is read in the last."""
    contents = {each["id"]: each["contents"] for each in rows(folder / "corpus.jsonl")}
    for each in asked(folder):
        kind, question, (answer,) = each["metadata"]["type"], each["question"], each["golden_answers"]
        steps = each["metadata"]["question_decomposition"]
        titles = [contents[step["support_id"]].partition("\n")[0] for step in steps]
        assert [step["support_id"] for step in steps] == each["metadata"]["gold_ids"]
        assert len(set(titles)) == len(titles)
        assert all(step["answer"] in contents[step["support_id"]] for step in steps)
        if kind == "comparison":
            continue
        assert titles[0] in question
        assert titles[1:] == [step["answer"] for step in steps[:-1]]
        said = steps[-1]["answer"]
        if kind == "yes or no":
            assert answer == ("yes" if re.search(rf"\b{said}\b", question) else "no")
        else:
            assert answer == said
            assert (said in question) == (kind == "choice")
        if kind.endswith("hops"):
            assert kind == f"{len(steps)} hops"


def test_the_answer_of_a_comparison_is_the_one_whose_town_is_older(folder: Path) -> None:
    """By the years in the gold passages, which are well apart."""
    kinds = set()
    for each in asked(folder, "comparison"):
        steps, options = each["metadata"]["question_decomposition"], each["metadata"]["guesses"]
        years = [int(step["answer"]) for step in steps if step["answer"].isdigit()]
        assert abs(years[0] - years[1]) >= YEARS_APART
        assert each["golden_answers"] == [options[years[0] > years[1]]]
        assert all(option in each["question"] for option in options)
        kinds.add(len(steps))
    assert kinds == {2, 4}


def test_the_world_is_closed(folder: Path) -> None:
    """No question has a word that stands in no passage and in no question of the warm-up."""
    known = " ".join(each["contents"] for each in rows(folder / "corpus.jsonl"))
    known += " ".join(each["question"] for each in rows(folder / "warmup.jsonl"))
    for each in asked(folder):
        said = f"{each['question']} {' '.join(each['metadata']['guesses'])}"
        assert set(re.findall(WORDS, said)) <= set(re.findall(WORDS, known)) | {"yes", "no"}


def test_no_question_and_no_chain_is_asked_twice(folder: Path) -> None:
    """Not in one split, not in two, and not as a choice here and as yes or no there."""
    questions = [each["question"] for each in asked(folder)]
    assert len(set(questions)) == len(questions) == sum(SPLITS.values())
    chains = [
        json.dumps([each["metadata"]["question_decomposition"], re.findall(r"of the \w+|the \w+ of", each["question"])])
        for each in asked(folder)
        if each["metadata"]["type"] != "comparison"
    ]
    assert len(set(chains)) == len(chains)


def known(question: Question, world: World, skill: Skill) -> GoldQuestion:
    return GoldQuestion(question, world, skill, max_steps=14, alpha=1.0, top_k=2)


def of_every_kind(folder: Path) -> list[Question]:
    kinds: dict[str | None, list[Question]] = {}
    for each in open_questions(folder / "dev.jsonl", dataset="lucky", split="dev").read(None):
        kinds.setdefault(each.type, []).append(each)
    assert set(kinds) == set(SHARES)
    return [each for found in kinds.values() for each in found[:2]]


def test_the_gold_teacher_finds_every_fact_and_answers_every_kind(folder: Path, world: World) -> None:
    """A perfect one is right, wherever its queries find the gold passages; the sentences it reads say the facts."""
    questions = of_every_kind(folder)
    values = []
    for question in questions:
        process = known(question, world, Skill("perfect", good=1, right=1))
        steps = question.metadata["question_decomposition"]
        assert all(step["answer"] in fact.sentence for step, fact in zip(steps, process.facts, strict=True))
        values.append(process.value(process.start()))
    assert sum(value == pytest.approx(1) for value in values) >= 0.8 * len(values)


def test_a_weak_teacher_misreads_its_weak_facts_alone(folder: Path, world: World) -> None:
    """As often as it says, by the first sentence of their passage; all else it does as a perfect one."""
    chances = {True: set[float](), False: set[float]()}
    for question in of_every_kind(folder):
        weak = known(question, world, Skill("weak", good=1, right=1, weak=("teacher", "home"), weak_good=0.3))
        state = weak.start()
        while state.turn != "conclude" and not weak.informed(state):
            options = weak.options(state)
            told = [each for each in options if each.type == "evidence" and weak.stated(each.content) - state.found]
            if told:
                is_weak = bool({"teacher", "home"} & set(told[0].content.split()))
                chances[is_weak].add(round(sum(each.chance for each in told), 9))
                if is_weak:
                    [(likeliest, first)] = [(each.chance, each.content) for each in options if each not in told]
                    [own] = [text for _, text in state.passages if told[0].content in text]
                    assert (likeliest, first) == (0.7, sentences(own)[0])
            state = weak.after(state, *((best := (told or options)[0]).type, best.content))
    assert chances == {True: {0.3}, False: {1.0}}
