"""Atlas: a fictional encyclopedia, made up anew each time, with questions of known answers and gold passages.

The world is a row of counties, each a pure function of its number, so that any size streams in constant memory
and a larger world contains a smaller one. Questions stay inside their county and a county belongs to one split:
splits share neither question nor gold passage. Nothing here is copied from anywhere; it ships as code, not as text.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import orjson

from preference.export.private_files import atomic_replacement

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
VERSION = 2
"""Changes whenever the same size would give different text."""
DEFAULT_COUNTIES = 120
"""1,320 passages and 960 questions: small enough to be made and indexed in a second, large enough to search in."""

_ONSETS = "b br c d dr f g gr h j k l m n p qu r s t th tr v w z".split()
_VOWELS = "a e i o u ae ea ia io ou".split()
_CODAS = "l m n nd r rn s st th x".split()
_SYLLABLES = [onset + vowel for onset in _ONSETS for vowel in _VOWELS]
_TOWN_ENDINGS = "borough bridge by fell ford garth holm mere mouth stead wick worth".split()
_OCCUPATIONS = "astronomer botanist cartographer chemist composer engraver historian physician poet sculptor".split()
_GENRES = "ballad chronicle comedy elegy fable memoir novel opera satire treatise".split()
_TRADES = "Academy Brewery Company Conservatory Foundry Guild Institute Museum Observatory Press".split()
_QUALITIES = (
    "Amber Ashen Broken Burning Crooked Distant Drowned Empty Faithful Forgotten Gilded Hollow Hidden Iron Last "
    "Lonely Narrow Pale Patient Quiet Restless Scarlet Second Silent Sleeping Stolen Unseen Wandering Winter Wooden"
).split()
_THINGS = (
    "Anchor Bell Bridge Candle Clock Compass Crown Door Garden Harbour Key Lantern Ledger Letter Lighthouse Loom "
    "Map Mirror Orchard Organ Raven River Rope Sail Staircase Telescope Tower Violin Well Window"
).split()
_COMPANIONS = _TRADES + [f"{quality} Hours" for quality in _QUALITIES]


class Town(NamedTuple):
    name: str
    region: str
    river: str
    founded: int
    population: int


class Person(NamedTuple):
    name: str
    born: int
    birthplace: Town
    home: Town
    occupation: str


class Work(NamedTuple):
    name: str
    author: Person
    year: int
    genre: str


class Organisation(NamedTuple):
    name: str
    founder: Person
    seat: Town
    founded: int


Subject: TypeAlias = Town | Person | Work | Organisation


class County(NamedTuple):
    """A self-contained part of the world: no question crosses its border."""

    number: int
    towns: tuple[Town, ...]
    people: tuple[Person, ...]
    works: tuple[Work, ...]
    organisation: Organisation

    @property
    def split(self) -> Split:
        """Eight of ten counties are for training, one for dev, one for test."""
        return SPLITS[max(0, self.number % 10 - 7)]

    @property
    def subjects(self) -> tuple[Subject, ...]:
        return (*self.towns, *self.people, *self.works, self.organisation)


def county(number: int) -> County:
    """The county with this number, from 0."""
    dice = random.Random(f"atlas {VERSION} 0 {number}")
    region = _word(number // 4, kind=0, syllables=3) + "ia"
    towns = tuple(
        Town(
            name=_word(place, kind=3, syllables=2, ending=_TOWN_ENDINGS[place % len(_TOWN_ENDINGS)]),
            region=region,
            river=_word(place, kind=1, syllables=2, ending=dice.choice(_CODAS)),
            founded=dice.randrange(900, 1600),
            population=dice.randrange(12, 900) * 100,
        )
        for place in range(3 * number, 3 * number + 3)
    )
    births = dice.sample(range(1700, 1900), 4)
    people = tuple(_person(4 * number + i, born, towns, dice) for i, born in enumerate(births))
    works: list[Work] = []
    for i, author in enumerate(people[:3]):
        year = author.born + dice.randrange(22, 60)
        year += year in {work.year for work in works[:1]}  # "published first" needs different years
        works.append(Work(_work_title(3 * number + i), author, year, dice.choice(_GENRES)))
    organisation = Organisation(
        name=f"{_word(number, kind=2, syllables=3)} {dice.choice(_TRADES)}",
        founder=people[3],
        seat=towns[2],
        founded=people[3].born + dice.randrange(25, 50),
    )
    return County(number, towns, people, tuple(works), organisation)


def passages(counties: int = DEFAULT_COUNTIES) -> Iterator[dict[str, str]]:
    """The corpus in FlashRAG's format, county by county."""
    for place in map(county, range(counties)):
        for position, subject in enumerate(place.subjects):
            yield {"id": f"atlas_{place.number}_{position}", "contents": f"{subject.name}\n{_describe(subject)}"}


def questions(split: Split, counties: int = DEFAULT_COUNTIES) -> Iterator[dict[str, Any]]:
    """The questions of a split in FlashRAG's format, eight per county of that split."""
    for place in map(county, range(counties)):
        for index, (kind, question, answer, gold) in enumerate(_asked(place) if place.split == split else ()):
            yield {
                "id": f"atlas_{split}_{place.number}_{index}",
                "question": question,
                "golden_answers": [answer],
                "metadata": {
                    "type": kind,
                    "gold_titles": [subject.name for subject in gold],
                    "gold_ids": [f"atlas_{place.number}_{place.subjects.index(each)}" for each in gold],
                },
            }


def write_world(directory: Path, counties: int = DEFAULT_COUNTIES) -> Path:
    """Write the world as `corpus.jsonl` and a file per split, into its own folder below `directory`.

    An existing world is reused: its folder's name covers everything it depends on.
    """
    home = directory / f"atlas-v{VERSION}-seed0-{counties}"
    home.mkdir(parents=True, exist_ok=True)
    files: dict[str, Iterable[dict[str, Any]]] = {split: questions(split, counties) for split in SPLITS}
    for name, records in (files | {"corpus": passages(counties)}).items():
        if not (path := home / f"{name}.jsonl").exists():
            with atomic_replacement(path, shared=True) as file:
                file.writelines(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in records)
    return home


# -- names: the n-th name of a kind is a scrambled n written in syllables, so no two are the same ------------------


def _scramble(number: int, size: int, *, kind: int = 0) -> tuple[int, str]:
    """A permutation of range(size) applied to number, and what ends the name: a number if it has come around."""
    rounds, position = divmod(number, size)
    step = 7_368_787 + 2 * kind
    while math.gcd(step, size) != 1:
        step += 1
    return (position * step + 104_729 * (kind + 1)) % size, f" {rounds + 1}" if rounds else ""


def _word(number: int, *, kind: int, syllables: int, ending: str = "") -> str:
    """A capitalised word of open syllables, then the ending."""
    size = len(_SYLLABLES) ** syllables
    position, again = _scramble(number, size, kind=kind)
    parts = []
    for _ in range(syllables):
        position, digit = divmod(position, len(_SYLLABLES))
        parts.append(_SYLLABLES[digit])
    return "".join(parts).capitalize() + ending + again


def _work_title(number: int) -> str:
    size = len(_QUALITIES) * len(_THINGS) * len(_COMPANIONS)
    position, again = _scramble(number, size)
    position, quality = divmod(position, len(_QUALITIES))
    companion, thing = divmod(position, len(_THINGS))
    return f"The {_QUALITIES[quality]} {_THINGS[thing]} and the {_COMPANIONS[companion]}{again}"


def _person(number: int, born: int, towns: tuple[Town, ...], dice: random.Random) -> Person:
    given = _SYLLABLES[number % 97].capitalize() + dice.choice(_CODAS)
    shared = number // 2  # two people share a family name, so that searching for it alone finds both
    family = _word(shared, kind=4, syllables=2, ending=_CODAS[shared % len(_CODAS)])
    birthplace, home = dice.sample(towns, 2)
    return Person(f"{given} {family}", born, birthplace, home, dice.choice(_OCCUPATIONS))


# -- text ------------------------------------------------------------------------------------------------------


def _describe(subject: Subject) -> str:
    match subject:
        case Town():
            return (
                f"{subject.name} is a town in the region of {subject.region}. It was founded in {subject.founded} and "
                f"has {subject.population:,} inhabitants. The river {subject.river} flows through {subject.name}."
            )
        case Person():
            return (
                f"{subject.name} (born {subject.born}) was {_article(subject.occupation)}. {subject.name} was born in "
                f"{subject.birthplace.name} and later lived in {subject.home.name}, where most of the work was done."
            )
        case Work():
            return (
                f"{subject.name} is {_article(subject.genre)} by {subject.author.name}, published in {subject.year}. "
                f"It was first printed in {subject.author.home.name}."
            )
        case Organisation():
            return (
                f"The {subject.name} is an organisation with its seat in {subject.seat.name}. "
                f"It was founded in {subject.founded} by {subject.founder.name}."
            )


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _asked(place: County) -> Iterator[tuple[str, str, str, tuple[Subject, ...]]]:
    """Type, question, answer, and what it rests on."""
    first, second, third = place.works
    one, other, *_ = place.people
    house, author = place.organisation, third.author
    yield "bridge", f"Where was the author of {first.name} born?", first.author.birthplace.name, (first, first.author)
    asked = f"What was the occupation of the founder of the {house.name}?"
    yield "bridge", asked, house.founder.occupation, (house, house.founder)
    asked = f"Which river flows through the town where {other.name} was born?"
    yield "composition", asked, other.birthplace.river, (other, other.birthplace)
    asked = f"In what year was the town founded in which the author of {third.name} was born?"
    yield "composition", asked, str(author.birthplace.founded), (third, author, author.birthplace)
    asked = f"How many inhabitants has the town where the {house.name} has its seat?"
    yield "composition", asked, f"{house.seat.population:,}", (house, house.seat)
    earlier, later = sorted((one, other), key=lambda person: person.born)
    yield "comparison", f"Who was born first, {one.name} or {other.name}?", earlier.name, (earlier, later)
    sooner, _ = sorted((first, second), key=lambda work: work.year)
    yield "comparison", f"Which was published first, {first.name} or {second.name}?", sooner.name, (first, second)
    # born in the same town in every second ten of counties, where possible: splits are decided within tens
    pairs, wanted = list(permutations(place.people, 2)), place.number // 10 % 2 == 0
    left, right = next((pair for pair in pairs if (pair[0].birthplace == pair[1].birthplace) == wanted), pairs[0])
    same = "yes" if left.birthplace == right.birthplace else "no"
    yield "yes_no", f"Were {left.name} and {right.name} born in the same town?", same, (left, right)
