"""The world with lucky answers: questions whose few possible answers let a wrong process win often.

    python benchmarks/lucky_world.py FOLDER --seed 0 --warmup 1500 --explore 900 --dev 500 --heldout 2000

Decides passages, questions and their splits, from a seed. Beside chains of three and four passages there are questions
that name their possible answers: which of two is older, which of four is right, yes or no. Most names share a word with
two or three others, so that a search finds the passage of a namesake too. Closed as `loop_world` is: every word stands
in the corpus or in a question of the warm-up. The splits share no question, and no chain in two forms.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import loop_world
from loop_world import CODAS, GENRES, OCCUPATIONS, TOWN_ENDINGS, TRADES, article, coined_words, write_lines

QUALITIES = (*loop_world.QUALITIES, *"Bitter Frozen Golden Hidden Painted Restless Sunken Velvet".split())
THINGS = (*loop_world.THINGS, *"Bridge Feather Hammer Kettle Pillar Saddle Thimble Window".split())
SIDES = "Upper Lower New".split()
RIVERS = 12
CENTURIES = {10: "eleventh", 11: "twelfth", 12: "thirteenth", 13: "fourteenth", 14: "fifteenth", 15: "sixteenth"}
YEARS = range(1005, 1600, 15)
"""Few, and known to all splits, so that a small model can learn their order."""
FAMILY = 4
"""People with one family name."""

SHARES = {"3 hops": 0.34, "4 hops": 0.18, "comparison": 0.16, "choice": 0.16, "yes or no": 0.16}
"""Of the questions of each split, by kind."""
CHOICES = {"choice": 4, "choice of two": 2}
LUCK = {"comparison": 1 / 2, "yes or no": 1 / 2} | {kind: 1 / many for kind, many in CHOICES.items()}
"""Chance that a blind guess among the possible answers is right."""
FARTHER = 1 / 3
"""Share of the comparisons that ask for the towns of people or organisations: four passages instead of two."""
YEARS_APART = 100
"""At least, of two things that are compared."""
DEFAULT_SPLITS = {"warmup": 1500, "explore": 900, "dev": 500, "heldout": 2000}


@dataclass(frozen=True)
class Size:
    """How much there is of everything."""

    towns: int = 150
    people: int = 400
    works: int = 700
    organisations: int = 150


T = TypeVar("T")


@dataclass(frozen=True)
class Town:
    name: str
    river: str
    founded: int

    @property
    def century(self) -> str:
        return CENTURIES[self.founded // 100]


@dataclass(eq=False)
class Person:
    """teacher, favourite: another person and a work, set once all are there."""

    name: str
    birthplace: Town
    home: Town
    occupation: str
    teacher: Person = field(init=False)
    favourite: Work = field(init=False)


@dataclass(frozen=True, eq=False)
class Work:
    name: str
    author: Person
    genre: str


@dataclass(frozen=True, eq=False)
class Organisation:
    name: str
    founder: Person
    seat: Town


Thing = Town | Person | Work | Organisation
Compared = tuple[str, tuple[Thing, Thing], tuple[Town, Town]]
"""Relation, two things, and the towns that they have by it; without a relation the things are the towns."""


@dataclass(frozen=True)
class Things:
    towns: list[Town]
    people: list[Person]
    works: list[Work]
    organisations: list[Organisation]

    @property
    def all(self) -> list[Thing]:
        return [*self.towns, *self.people, *self.works, *self.organisations]


@dataclass(frozen=True)
class Fact:
    """A thing whose passage is needed, and what is read there."""

    about: Thing
    says: str


@dataclass(frozen=True)
class Chain:
    """A description of a thing, `the home of Bal Quiorn`, and the fact that is asked about it, `asks` its kind. facts:
    all that are needed, in order; the last one says the answer."""

    described: str
    asks: str
    facts: tuple[Fact, ...]

    @property
    def answer(self) -> str:
        return self.facts[-1].says


@dataclass(frozen=True)
class Asked:
    """A question. options: the answers that a guess is made among."""

    kind: str
    question: str
    answer: str
    options: tuple[str, ...]
    facts: tuple[Fact, ...]


# -- things and passages -----------------------------------------------------------------------------------------


def things(size: Size, seed: int, told: int = 0) -> Things:
    """All that there are passages about, with facts drawn at random. told: the same things, with other rivers, years,
    occupations and genres."""
    dice, others = random.Random(f"lucky world {seed}"), random.Random(f"lucky values {seed} {told}")

    def value(among: Sequence[T]) -> T:
        first, other = dice.choice(among), others.choice(among)
        return other if told else first

    words = coined_words(dice)
    rivers = [next(words) + dice.choice(CODAS) for _ in range(RIVERS)]
    roots = [next(words) + dice.choice(TOWN_ENDINGS) for _ in range(-(-size.towns // len(SIDES)))]
    names = [f"{side} {root}" for root in roots for side in SIDES][: size.towns]
    towns = [Town(name, value(rivers), value(YEARS)) for name in names]
    given = [next(words) for _ in range(24)]
    families = [next(words) + dice.choice(CODAS) for _ in range(-(-size.people // FAMILY))]
    names = [f"{first} {last}" for last in families for first in dice.sample(given, FAMILY)][: size.people]
    people = []
    for name in names:
        birthplace, home = dice.sample(towns, 2)
        people.append(Person(name, birthplace, home, value(OCCUPATIONS)))
    titles = dice.sample([f"{quality} {thing}" for quality in QUALITIES for thing in THINGS], size.works)
    works = [Work(title, dice.choice(people), value(GENRES)) for title in titles]
    for person in people:
        person.teacher = dice.choice([each for each in people if each is not person])
        person.favourite = dice.choice(works)
    founders = [next(words) for _ in range(-(-size.organisations // 3))]
    names = [f"{word} {trade}" for word in founders for trade in dice.sample(TRADES, 3)][: size.organisations]
    return Things(towns, people, works, [Organisation(name, dice.choice(people), dice.choice(towns)) for name in names])


def passage(thing: Thing) -> str:
    """What the corpus says of a thing, under its name as the title."""
    name = thing.name
    match thing:
        case Town():
            return (
                f"{name} was founded in {thing.founded}, in the {thing.century} century. "
                f"The river {thing.river} flows through {name}."
            )
        case Person():
            return (
                f"{name} was {article(thing.occupation)}. The birthplace of {name} lies in {thing.birthplace.name}. "
                f"The home of {name} lies at {thing.home.name}. The teacher of {name} was {thing.teacher.name}. "
                f"The favourite of {name} is {thing.favourite.name}."
            )
        case Work():
            return f"{name} is {article(thing.genre)}. The author of {name} was {thing.author.name}."
        case Organisation():
            return f"{name} was founded by {thing.founder.name}. The seat of {name} lies near {thing.seat.name}."


# -- chains ------------------------------------------------------------------------------------------------------


def chains_of(thing: Thing) -> Iterator[Chain]:
    """Every chain of two to four passages that begins here; none passes a thing twice."""
    for each in _chains(thing.name, thing, (), left=4):
        if len({fact.about.name for fact in each.facts}) == len(each.facts) > 1:
            yield each


def _chains(described: str, thing: Thing, known: tuple[Fact, ...], *, left: int) -> Iterator[Chain]:
    """Chains that go on with a thing. left: passages that may still be added, with this one."""
    asked, ahead = _facts_of(thing)
    for asks, says in asked.items():
        yield Chain(described, asks, (*known, Fact(thing, says)))
    if left > 1:
        for relation, other in ahead.items():
            reached = f"the {relation} of {described}"
            yield from _chains(reached, other, (*known, Fact(thing, other.name)), left=left - 1)


def _facts_of(thing: Thing) -> tuple[dict[str, str], dict[str, Thing]]:
    """What can be asked about a thing, and the things it leads to."""
    match thing:
        case Town():
            return {"river": thing.river, "century": thing.century}, {}
        case Person():
            places: dict[str, Thing] = {"birthplace": thing.birthplace, "home": thing.home}
            return {"occupation": thing.occupation}, {
                **places,
                "favourite": thing.favourite,
                "teacher": thing.teacher,
            }
        case Work():
            return {"genre": thing.genre}, {"author": thing.author}
        case Organisation():
            return {}, {"founder": thing.founder, "seat": thing.seat}


OPEN = {
    "river": "Which river flows through {described}?",
    "century": "In what century was {described} founded?",
    "occupation": "What was the occupation of {described}?",
    "genre": "What is the genre of {described}?",
}
CHOICE = {
    "river": "Which of these rivers flows through {described}: {options}?",
    "century": "In which of these centuries was {described} founded: {options}?",
    "occupation": "Which of these was the occupation of {described}: {options}?",
    "genre": "Which of these is the genre of {described}: {options}?",
}


def _verdict(chain: Chain, said: str) -> str:
    described = chain.described
    return {
        "river": f"Does the river {said} flow through {described}?",
        "century": f"Was {described} founded in the {said} century?",
        "occupation": f"Was {described} {article(said)}?",
        "genre": f"Is {described} {article(said)}?",
    }[chain.asks]


def _listed(options: Sequence[str]) -> str:
    return f"{', '.join(options[:-1])} or {options[-1]}"


# -- questions ---------------------------------------------------------------------------------------------------


class Asker:
    """Makes questions of every kind, none twice, no chain in two of them."""

    def __init__(self, found: Things, seed: str) -> None:
        self._dice = random.Random(f"lucky questions {seed}")
        self._found = found
        chains = [each for thing in found.all for each in chains_of(thing) if _readable(each)]
        self._values = {asks: sorted({each.answer for each in chains if each.asks == asks}) for asks in OPEN}
        self._chains: dict[int, list[Chain]] = {2: [], 3: [], 4: []}
        self._dice.shuffle(chains)
        for each in chains:
            self._chains[len(each.facts)].append(each)
        self._compared = {False: self._near_pairs(), True: self._far_pairs()}

    def asked(self, kind: str) -> Iterator[Asked]:
        """New questions, one after another, as `ask` makes them."""
        while True:
            yield self.ask(kind)

    def ask(self, kind: str) -> Asked:
        """A new question. Raises ValueError if there is none left."""
        if kind == "comparison":
            return self._comparison()
        if kind in {*CHOICES, "yes or no"}:
            chain = self._chain(self._dice.choice((2, 3)))
            return self._choice(kind, chain) if kind in CHOICES else self._yes_or_no(chain)
        chain = self._chain(int(kind[0]))
        question = OPEN[chain.asks].format(described=chain.described)
        return Asked(kind, question, chain.answer, tuple(self._values[chain.asks]), chain.facts)

    def _chain(self, hops: int) -> Chain:
        if not self._chains[hops]:
            raise ValueError(f"the world has no more chains of {hops}; make it larger, or ask less")
        return self._chains[hops].pop()

    def _choice(self, kind: str, chain: Chain) -> Asked:
        others = [each for each in self._values[chain.asks] if each != chain.answer]
        options = [chain.answer, *self._dice.sample(others, CHOICES[kind] - 1)]
        self._dice.shuffle(options)
        question = CHOICE[chain.asks].format(described=chain.described, options=_listed(options))
        return Asked(kind, question, chain.answer, tuple(options), chain.facts)

    def _yes_or_no(self, chain: Chain) -> Asked:
        verdict = self._dice.choice(("yes", "no"))
        others = [each for each in self._values[chain.asks] if each != chain.answer]
        said = chain.answer if verdict == "yes" else self._dice.choice(others)
        return Asked("yes or no", _verdict(chain, said), verdict, ("yes", "no"), chain.facts)

    def _comparison(self) -> Asked:
        pairs = self._compared[self._dice.random() < FARTHER]
        if not pairs:
            raise ValueError("the world has no more things to compare; make it larger, or ask less")
        relation, things_asked, towns = pairs.pop()
        names = (things_asked[0].name, things_asked[1].name)
        older = names[towns[0].founded > towns[1].founded]
        facts = tuple(
            fact
            for thing, town in zip(things_asked, towns, strict=True)
            for fact in ([] if thing is town else [Fact(thing, town.name)]) + [Fact(town, str(town.founded))]
        )
        question = {
            "": "Which was founded first, {}?",
            "seat": "Which has the older seat, {}?",
            "birthplace": "Who has the older birthplace, {}?",
            "home": "Who has the older home, {}?",
        }[relation].format(_listed(names))
        return Asked("comparison", question, older, names, facts)

    def _near_pairs(self) -> list[Compared]:
        towns = self._found.towns
        return self._drawn([("", (one, two), (one, two)) for one, two in combinations(towns, 2)])

    def _far_pairs(self) -> list[Compared]:
        owners: dict[str, list[tuple[Thing, Town]]] = {
            "seat": [(each, each.seat) for each in self._found.organisations],
            "birthplace": [(each, each.birthplace) for each in self._found.people],
            "home": [(each, each.home) for each in self._found.people],
        }
        return self._drawn(
            [
                (relation, (one, two), (first, second))
                for relation, owned in owners.items()
                for each, (one, first) in enumerate(owned)
                for two, second in self._dice.sample(owned[:each], min(each, 8))
            ]
        )

    def _drawn(self, pairs: list[Compared]) -> list[Compared]:
        """Those whose names share no word, so that a wrong answer has no part of the right one, in random order."""
        kept = [
            (relation, pair, towns)
            for relation, pair, towns in pairs
            if not set(pair[0].name.split()) & set(pair[1].name.split())
            and abs(towns[0].founded - towns[1].founded) >= YEARS_APART
        ]
        self._dice.shuffle(kept)
        return kept


def _readable(chain: Chain) -> bool:
    """No chain goes beyond a favourite, nor over two teachers."""
    return not re.search("author of the favourite|teacher of the teacher", chain.described)


# -- other names ---------------------------------------------------------------------------------------------------


class Exchanger:
    """Tells the same of others: all names of a kind exchanged at random, those of the same thing alike.

    Who learns from many such texts can know no fact by heart. Order among years is lost.
    """

    def __init__(self, size: Size, seed: int) -> None:
        found = things(size, seed)
        kinds = (found.towns, found.people, found.works, found.organisations)
        rivers = sorted({each.river for each in found.towns})
        self._kinds = [[each.name for each in kind] for kind in kinds] + [rivers, [*OCCUPATIONS], [*GENRES]]
        self.names = [name for kind in self._kinds for name in kind] + [*CENTURIES.values(), *map(str, YEARS)]
        """All that may be exchanged, one name each."""
        longest = sorted(self.names, key=len, reverse=True)
        self._pattern = re.compile(rf"\b(an? )?({'|'.join(map(re.escape, longest))})\b")

    def drawn(self, dice: random.Random) -> Callable[[str], str]:
        """One way of exchanging them, for all texts that belong together."""
        to = {one: two for kind in self._kinds for one, two in zip(kind, dice.sample(kind, len(kind)), strict=True)}
        centuries = dict(zip(CENTURIES, dice.sample([*CENTURIES], len(CENTURIES)), strict=True))
        to |= {CENTURIES[one]: CENTURIES[two] for one, two in centuries.items()}
        for year in YEARS:
            to[str(year)] = str(dice.choice([each for each in YEARS if each // 100 == centuries[year // 100]]))

        def told(found: re.Match[str]) -> str:
            name = to[found[2]]
            return article(name) if found[1] else name

        return lambda text: self._pattern.sub(told, text)


# -- files -------------------------------------------------------------------------------------------------------


def write_world(
    folder: Path,
    size: Size,
    splits: dict[str, int],
    *,
    seed: int,
    told: int = 0,
    but: Collection[str] = (),
    shares: Mapping[str, float] = SHARES,
) -> None:
    """`corpus.jsonl`, and `<split>.jsonl` with so many questions each, of all kinds by their shares. told: as of
    `things`. but: questions that are asked elsewhere.

    metadata of a question: `type`, its kind; `gold_ids`, in order; `question_decomposition`, what is read in each of
    them; `guesses`, what a guess is made among; `namesakes`, titles that share a word with a gold passage's. Raises
    ValueError if the world is too small.
    """
    found = things(size, seed, told)
    number = {thing.name: f"lucky_{position}" for position, thing in enumerate(found.all)}
    write_lines(
        folder / "corpus.jsonl",
        ({"id": number[each.name], "contents": f"{each.name}\n{passage(each)}"} for each in found.all),
    )
    asker = Asker(found, drawn := f"{seed} {told}" if told else str(seed))
    dice = random.Random(f"lucky splits {drawn}")
    namesakes = _namesakes(found)
    for split, count in splits.items():
        kinds = kinds_of(count, shares)
        asked = [next(each for each in asker.asked(kind) if each.question not in but) for kind in kinds]
        dice.shuffle(asked)
        write_lines(
            folder / f"{split}.jsonl",
            (_record(f"{split}_{position}", each, number, namesakes, dice) for position, each in enumerate(asked)),
        )


def kinds_of(count: int, shares: Mapping[str, float]) -> list[str]:
    """Kinds of so many questions, as near to their shares as whole numbers are."""
    ends = [0.0]
    for share in shares.values():
        ends.append(ends[-1] + share * count)
    return [
        kind
        for kind, begin, end in zip(shares, ends[:-1], ends[1:], strict=True)
        for _ in range(round(end) - round(begin))
    ]


def _namesakes(found: Things) -> dict[str, list[str]]:
    """For every name the others of its kind that share its last word; of works, its first word."""
    alike: dict[tuple[type, str], list[str]] = {}
    for thing in found.all:
        alike.setdefault(_shared_word(thing), []).append(thing.name)
    return {each.name: [name for name in alike[_shared_word(each)] if name != each.name] for each in found.all}


def _shared_word(thing: Thing) -> tuple[type, str]:
    first, last = thing.name.split()
    return type(thing), first if isinstance(thing, Work | Organisation) else last


def _record(
    question_id: str, asked: Asked, number: dict[str, str], namesakes: dict[str, list[str]], dice: random.Random
) -> dict[str, Any]:
    names = [fact.about.name for fact in asked.facts]
    others = [each for name in names for each in namesakes[name] if each not in names]
    return {
        "id": question_id,
        "question": asked.question,
        "golden_answers": [asked.answer],
        "metadata": {
            "type": asked.kind,
            "gold_ids": [number[each] for each in names],
            "question_decomposition": [
                {"support_id": number[fact.about.name], "answer": fact.says} for fact in asked.facts
            ],
            "guesses": list(asked.options),
            "namesakes": dice.sample(others, min(4, len(others))),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    for split, count in DEFAULT_SPLITS.items():
        parser.add_argument(f"--{split}", type=int, default=count, help="questions [%(default)s]")
    asked = parser.parse_args()
    write_world(asked.folder, Size(), {each: getattr(asked, each) for each in DEFAULT_SPLITS}, seed=asked.seed)


if __name__ == "__main__":
    main()
