"""Which passages a question is written from: single ones, and chains of passages that a rare name links.

Decides what a name is, how rare it must be, and which documents are held out. A chain never mixes documents of the two
sides. Knows no model.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import orjson

from preference.records import short_digest
from reasonrag.data.corpus import Passage

MOST_PASSAGES = 20_000
"""Of a corpus, drawn by the seed; names and links of more are not looked for."""
RARE = 5
"""Most passages that share a name which links them."""
DRAWS = 3
"""Questions asked for of the same passages."""
HOPS = (2, 2, 2, 3, 3, 4)
"""Lengths of chains, by how often they are tried."""
SHORTEST = 40
"""Characters of a passage that has something to ask about."""
_OF_A_FILE = re.compile(r"(.+)#[0-9a-f]{12}", re.DOTALL)
"""Ids that `corpus build` gives."""
_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_WITHOUT_SPACES = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]{4,}")
"""Chinese and Japanese, where a name is any four characters in a row."""


class Source(NamedTuple):
    """Passages to write a question from. draw: number of the attempt with them. of: passages that were shown, if the
    question rests on some of them only."""

    passages: tuple[Passage, ...]
    held_out: bool
    draw: int
    of: tuple[Passage, ...] = ()

    @property
    def hops(self) -> int:
        return len(self.passages)

    @property
    def id(self) -> str:
        """Of the question: 16 hexadecimal digits."""
        shown = [each.id for each in self.of or self.passages]
        return short_digest(orjson.dumps([shown, self.draw]))

    def resting_on(self, numbers: Iterable[int]) -> Source:
        """Numbers from 1."""
        return self._replace(passages=tuple(self.passages[each - 1] for each in numbers), of=self.passages)


def document_of(passage: Passage) -> str:
    """Of a corpus that `corpus build` wrote, the file; of another, what has the title up to the first heading, or it is
    the passage itself."""
    file = _OF_A_FILE.fullmatch(passage.id)
    return (file and file[1]) or passage.title.partition(" > ")[0] or passage.id


def held_out_documents(passages: Sequence[Passage], share: float, seed: int) -> set[str]:
    """Documents with about this share of the passages, at least one of several; none of a single document."""
    sizes = Counter(map(document_of, passages))
    names = random.Random(f"{seed} held out").sample(sorted(sizes), len(sizes)) if share and len(sizes) > 1 else []
    wanted, taken, found = share * len(passages), 0, set[str]()
    for name in names[:-1]:
        if abs(taken + sizes[name] - wanted) < abs(taken - wanted):
            taken += sizes[name]
            found.add(name)
    return found or set(sorted(names, key=sizes.__getitem__)[:1])


def singles(passages: Sequence[Passage], *, held_out: bool, seed: int) -> Iterator[Source]:
    """Passages one by one, a document after the other in turns, so that a large one does not come first."""
    of: dict[str, list[Passage]] = defaultdict(list)
    dice = random.Random(f"{seed} single")
    for each in dice.sample(passages, len(passages)):
        if len(each.text) >= SHORTEST:
            of[document_of(each)].append(each)
    for draw in range(DRAWS):
        for turn in range(max(map(len, of.values()), default=0)):
            yield from (Source((found[turn],), held_out, draw) for found in of.values() if turn < len(found))


def chains(passages: Sequence[Passage], *, held_out: bool, seed: int) -> Iterator[Source]:
    """Chains from every passage in turn, each once; passages of another document come before others of the same."""
    dice = random.Random(f"{seed} chain")
    linked, seen = _links(passages), set[frozenset[int]]()
    for _ in range(DRAWS):
        for start in dice.sample(range(len(passages)), len(passages)):
            wanted, path = dice.choice(HOPS), [start]
            while len(path) < wanted and (found := [each for each in linked[path[-1]] if each not in path]):
                here = document_of(passages[path[-1]])
                others = [each for each in found if document_of(passages[each]) != here]
                path.append(dice.choice(others or found))
            if len(path) > 1 and frozenset(path) not in seen:
                seen.add(frozenset(path))
                yield Source(tuple(passages[each] for each in path), held_out, 0)


def _links(passages: Sequence[Passage]) -> list[list[int]]:
    """Of each passage, those that share a rare name with it."""
    holders = defaultdict[str, list[int]](list)
    for number, passage in enumerate(passages):
        for name in names_in(passage):
            if len(holders[name]) <= RARE:  # one more tells that it is not rare
                holders[name].append(number)
    linked: list[set[int]] = [set() for _ in passages]
    for found in holders.values():
        for one in found if len(found) <= RARE else ():
            linked[one].update(found)
    return [sorted(each - {number}) for number, each in enumerate(linked)]


def names_in(passage: Passage) -> set[str]:
    """What may link it, case folded: words in capitals or with a digit, several of them in a row as one, and in Chinese
    and Japanese four characters; a single word only from four letters on, since shorter ones are rarely names."""
    found = set[str]()
    text = f"{passage.title.rpartition(' > ')[2]}\n{passage.text}"
    for line in text.splitlines():
        run: list[str] = []
        for word in [*_WORD.findall(line), ""]:
            if word[:1].isupper() or (any(map(str.isdigit, word)) and not word.isdigit()):
                run.append(word)
                continue
            found |= {" ".join(run).casefold()} if len(run) > 1 else set()
            found |= {each.casefold() for each in run if len(each) >= 4}  # noqa: PLR2004 - see above
            run = []
        for piece in _WITHOUT_SPACES.findall(line):
            found |= {piece[start : start + 4] for start in range(len(piece) - 3)}
    return found
