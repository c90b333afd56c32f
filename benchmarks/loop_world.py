"""The closed world of the loop: few things, each named by few words, and many questions about chains of them.

Decides passages, questions and their splits, from a seed. Closed: every word stands in the corpus or in a question of
the warm-up, so that a vocabulary of whole words has no unknown ones; what is held out are questions, no names. The
splits share no question; questions about the same things are in all of them. Sentences put another small word before
every kind of name (`lies in`, `lies at`, `founded by`), by which a network of few layers can tell them apart. Nothing
here is copied from anywhere.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from preference.export.private_files import atomic_replacement

ONSETS = "b br d dr f g gr h k l m n p r s st t th tr v w z".split()
VOWELS = "a e i o u ae ei ou".split()
CODAS = "l m n nd r rn s st x".split()
TOWN_ENDINGS = "borough by fell ford holm mere stead wick".split()
OCCUPATIONS = "astronomer botanist chemist composer engraver historian physician poet sculptor".split()
GENRES = "ballad comedy elegy fable memoir novel opera satire".split()
QUALITIES = (
    "Amber Ashen Broken Burning Crooked Distant Drowned Empty Faithful Gilded Hollow Iron Lonely Narrow Pale Patient "
    "Quiet Scarlet Silent Wandering"
).split()
THINGS = (
    "Anchor Bell Candle Clock Compass Crown Garden Harbour Key Lantern Ledger Letter Loom Map Mirror Orchard Raven "
    "Rope Sail Tower"
).split()
TRADES = "Academy Brewery Foundry Guild Institute Museum Observatory Press".split()


@dataclass(frozen=True)
class Size:
    """How much there is of everything."""

    towns: int = 60
    people: int = 120
    works: int = 120
    organisations: int = 40


@dataclass(frozen=True)
class Town:
    name: str
    river: str
    founded: int


@dataclass(frozen=True)
class Person:
    name: str
    birthplace: Town
    home: Town
    occupation: str


@dataclass(frozen=True)
class Work:
    name: str
    author: Person
    genre: str


@dataclass(frozen=True)
class Organisation:
    name: str
    founder: Person
    seat: Town


Thing = Town | Person | Work | Organisation


def things(size: Size, seed: int) -> list[Thing]:
    """All that there are passages about, with facts drawn at random."""
    dice = random.Random(f"loop world {seed}")
    words = coined_words(dice)
    towns = [
        Town(next(words) + dice.choice(TOWN_ENDINGS), next(words) + dice.choice(CODAS), year)
        for year in dice.sample(range(1000, 1600), size.towns)
    ]
    given = [next(words) for _ in range(24)]
    families = [next(words) + dice.choice(CODAS) for _ in range(size.people // 2)]
    names = dice.sample([f"{first} {last}" for last in families for first in dice.sample(given, 2)], size.people)
    people = [Person(name, *dice.sample(towns, 2), dice.choice(OCCUPATIONS)) for name in names]
    titles = dice.sample([f"{quality} {thing}" for quality in QUALITIES for thing in THINGS], size.works)
    works = [Work(title, dice.choice(people), dice.choice(GENRES)) for title in titles]
    organisations = [
        Organisation(f"{next(words)} {dice.choice(TRADES)}", dice.choice(people), dice.choice(towns))
        for _ in range(size.organisations)
    ]
    return [*towns, *people, *works, *organisations]


def coined_words(dice: random.Random) -> Iterator[str]:
    """Capitalised words, none twice, in an order of its own."""
    syllables = [onset + vowel for onset in ONSETS for vowel in VOWELS]
    words = [(one + two).capitalize() for one in syllables for two in syllables]
    dice.shuffle(words)
    return iter(words)


def passage(thing: Thing) -> str:
    """What the corpus says of a thing, under its name as the title."""
    name = thing.name
    match thing:
        case Town():
            return f"{name} was founded in {thing.founded}. The river {thing.river} flows through {name}."
        case Person():
            return (
                f"{name} was {article(thing.occupation)}. The birthplace of {name} lies in {thing.birthplace.name}. "
                f"The home of {name} lies at {thing.home.name}."
            )
        case Work():
            return f"{name} is {article(thing.genre)}. The author of {name} was {thing.author.name}."
        case Organisation():
            return f"{name} was founded by {thing.founder.name}. The seat of {name} lies near {thing.seat.name}."


def article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _of_towns(subject: str, town: Town) -> Iterator[tuple[str, str, list[Thing]]]:
    yield f"Which river flows through {subject}?", town.river, [town]
    yield f"In what year was {subject} founded?", str(town.founded), [town]


def _of_people(subject: str, person: Person) -> Iterator[tuple[str, str, list[Thing]]]:
    yield f"What was the occupation of {subject}?", person.occupation, [person]
    for relation, town in (("birthplace", person.birthplace), ("home", person.home)):
        yield f"What was the {relation} of {subject}?", town.name, [person]
        for question, answer, gold in _of_towns(f"the {relation} of {subject}", town):
            yield question, answer, [person, *gold]


def asked_of(thing: Thing) -> Iterator[tuple[str, str, list[Thing]]]:
    """Question, answer and the things whose passages it rests on, for every chain of two or three that begins here."""
    match thing:
        case Town():
            pass
        case Person():
            yield from (each for each in _of_people(thing.name, thing) if len(each[2]) > 1)
        case Work():
            for question, answer, gold in _of_people(f"the author of {thing.name}", thing.author):
                yield question, answer, [thing, *gold]
        case Organisation():
            for question, answer, gold in _of_people(f"the founder of {thing.name}", thing.founder):
                yield question, answer, [thing, *gold]
            for question, answer, gold in _of_towns(f"the seat of {thing.name}", thing.seat):
                yield question, answer, [thing, *gold]


def sub_questions(question: str, answer: str, gold: Sequence[Thing], number: Mapping[str, str]) -> list[dict[str, str]]:
    """The steps of a chain in MuSiQue's form, `#k` being the k-th answer. number: ids of passages, by name."""
    relations = re.findall(r"(author|founder|seat|birthplace|home|occupation) of", question)[::-1]
    relations += ["river"] * question.startswith("Which river") + ["year of founding"] * question.startswith("In what")
    subjects = [gold[0].name, *(f"#{position}" for position in range(1, len(gold)))]
    answers = [*(each.name for each in gold[1:]), answer]
    return [
        {"question": f"{subject} >> {relation}", "answer": said, "support_id": number[thing.name]}
        for subject, relation, said, thing in zip(subjects, relations, answers, gold, strict=True)
    ]


def write_world(folder: Path, size: Size, splits: dict[str, int], *, seed: int) -> None:
    """`corpus.jsonl`, and `<split>.jsonl` with so many questions each, drawn from all of them."""
    found = things(size, seed)
    number = {thing.name: f"loop_{position}" for position, thing in enumerate(found)}
    corpus = ({"id": number[each.name], "contents": f"{each.name}\n{passage(each)}"} for each in found)
    write_lines(folder / "corpus.jsonl", corpus)
    asked = [each for thing in found for each in asked_of(thing)]
    random.Random(f"loop splits {seed}").shuffle(asked)
    if sum(splits.values()) > len(asked):
        raise ValueError(f"the world has {len(asked)} questions, {sum(splits.values())} are wanted")
    for split, count in splits.items():
        records = [
            {
                "id": f"{split}_{position}",
                "question": question,
                "golden_answers": [answer],
                "metadata": {
                    "type": f"{len(gold)} hops",
                    "gold_ids": [number[each.name] for each in gold],
                    "question_decomposition": sub_questions(question, answer, gold, number),
                },
            }
            for position, (question, answer, gold) in enumerate(asked[:count])
        ]
        del asked[:count]
        write_lines(folder / f"{split}.jsonl", records)


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_replacement(path) as file:
        file.writelines(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in records)
