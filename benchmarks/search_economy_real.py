"""How much truth a call buys on real questions: recipes through the real explorer, agent, BM25 and pair builder, with
a teacher whose step values are known.

Prints Markdown with date, commit and machine; `--append FILE` adds it to a file as well. Costs nothing. See
gold_teacher.py for the teacher and for what counts as true.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from gold_teacher import GoldQuestion, GoldTeacher, Skill, World, open_world
from question_causes import cause_rows, finders
from reporting import CONFIDENCE, ROOT, publish, table
from search_economy import PUBLISHED_RULES
from verdicts import Verdict, Verdicts, counts, type_cells, types_of, verdict_cells, verdict_of, with_interval

from mcts import RECIPES, Recipe
from preference import PairingRules, RolloutRecord, candidates
from preference.causes import QuestionCause, cause_of
from preference.filters import AS_PUBLISHED, NO_FILTERS
from reasonrag.agent.agent import Agent
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.protocols.known import steps_of_hops
from reasonrag.data.questions import Question, open_questions
from reasonrag.exploration.explorer import Explorer, RunIdentity
from reasonrag.llm.chat import Sampling
from reasonrag.llm.prices import find_price
from reasonrag.retrieval.settings import INDEX_HOME

TOP_K = 3
SKILLS = (
    Skill("good .6"),
    Skill("guesses", good=0.85, early=0.3, luck=0.4),
    Skill("guesses, good .6", good=0.6, early=0.3, luck=0.4),
)
SPLITS = ("dev", "train")
"""In the order in which questions are taken from them."""
RECIPE_NAMES: tuple[str, ...] = ("released", "reasonrag", "prorag", "ragym", "continuation", "economy")
RULES: dict[str, PairingRules] = {
    **dict.fromkeys(("released", "reasonrag", "ragym"), AS_PUBLISHED),
    "prorag": PUBLISHED_RULES,
}
"""Of the recipes whose pairs are not kept by the default rules: those of the published systems. ProRAG's judge is not
asked here; steps are labelled by the values of its search."""
SHARES: dict[str, float] = {"prorag": 0.2}
"""Of the questions; for recipes that cost a thousand replies each."""
FILTERS: dict[str, PairingRules] = {
    "default": PairingRules(),
    "one pair a state": PairingRules(max_per_state=1),
    "all pairs of a state": PairingRules(max_per_state=None),
    **{f"confidence {each:g}": PairingRules(min_confidence=each) for each in (0.0, 0.5, 0.6, 0.75, 0.8, 0.9)},
    "margin .01": PairingRules(min_margin=0.01),
    "margin .3": PairingRules(min_margin=0.3),
    "ungrounded too": PairingRules(allow_ungrounded=True),
    "same findings too": PairingRules(allow_same_findings=True),
    "none but a margin of .01": replace(NO_FILTERS, min_margin=0.01),
}
"""Whose yields are compared, without the caps over the whole data set."""


@dataclass(frozen=True)
class Trial:
    """A way to explore, and which pairs are kept. share: of the questions. fit_steps: as of
    `agent.steps_by_hops`. gold_passages: whether the search knows them."""

    recipe: Recipe
    rules: PairingRules = field(default_factory=PairingRules)
    share: float = 1.0
    fit_steps: bool = False
    gold_passages: bool = True


TRIALS: dict[str, Trial] = {
    **{name: Trial(RECIPES[name], RULES.get(name, PairingRules()), SHARES.get(name, 1.0)) for name in RECIPE_NAMES},
    "economy, no gold passages": Trial(RECIPES["economy"], gold_passages=False),
    "economy, steps that fit": Trial(RECIPES["economy"], fit_steps=True),
}


@dataclass(frozen=True)
class Answered:
    """An answer step. informed: whether all facts were stated before. golden: whether it has an F1 of 1."""

    informed: bool
    golden: bool
    grounded: bool | None


@dataclass(frozen=True)
class Explored(Verdicts):
    """What one question gave.

    by_layer: pairs by layer and verdict. independent: of the right pairs, as many as say something that the others do
    not (`_independent`). guesses: pairs whose chosen step is an answer without all facts. answers: the answer steps
    that are nodes of the tree. cause, finders: where it died, and `question_causes.finders`.
    """

    question_id: str
    requests: int
    replies: int
    prompt_tokens: int
    completion_tokens: int
    mixed: bool
    guesses: int
    independent: int
    by_layer: Counter[tuple[int, Verdict]]
    answers: tuple[Answered, ...]
    cause: QuestionCause
    finders: Counter[str]

    @property
    def dollars(self) -> float:
        """At GPT-4o's list price, tokens at four characters each."""
        return find_price("gpt-4o").cost(self.prompt_tokens, self.completion_tokens)


def measure(
    world: World,
    questions: Sequence[Question],
    recipe: Recipe,
    skill: Skill,
    *,
    max_steps: int | None = None,
    rules: PairingRules = PairingRules(),  # noqa: B008 - frozen
    seed: int = 0,
) -> list[Explored]:
    """Explore every question with a recipe and hold its kept pairs against the truth. max_steps: the recipe's by
    default."""
    found = explored(world, questions, recipe, skill, max_steps=max_steps, seed=seed)
    return [judge(record, question, rules) for question, record in found]


def explored(
    world: World,
    questions: Sequence[Question],
    recipe: Recipe,
    skill: Skill,
    *,
    max_steps: int | None = None,
    fit_steps: bool = False,
    gold_passages: bool = True,
    seed: int = 0,
) -> list[tuple[GoldQuestion, RolloutRecord]]:
    """The tree of every question, with what is true of it. fit_steps, gold_passages: as of a `Trial`."""
    steps, alpha = max_steps or recipe.agent.max_steps, recipe.search.alpha

    def known(question: Question) -> GoldQuestion:
        own = steps_of_hops(question.hops, least=steps) if fit_steps and question.hops else steps
        return GoldQuestion(question, world, skill, max_steps=own, alpha=alpha, top_k=TOP_K)

    identity = RunIdentity(dataset="", split="dev", config_hash="", seed=seed, recipe=recipe)
    return asyncio.run(_explore_all(world, [known(each) for each in questions], identity, gold_passages=gold_passages))


async def _explore_all(
    world: World, questions: Sequence[GoldQuestion], identity: RunIdentity, *, gold_passages: bool
) -> list[tuple[GoldQuestion, RolloutRecord]]:
    teacher, prompts = GoldTeacher(questions), load_prompts()
    found = []
    for each in questions:
        agent = Agent(
            model=teacher,
            retriever=world.retriever,
            prompts=prompts,
            sampling=Sampling(temperature=1, top_p=1, max_tokens=512),
            top_k=TOP_K,
            max_steps=each.max_steps,
            seed=identity.seed,
        )
        asked = each.question if gold_passages else each.question.model_copy(update={"metadata": {}})
        explorer = Explorer(agent, asked, identity.recipe)
        await explorer.run()
        found.append((each, explorer.record(identity)))
    return found


def judge(record: RolloutRecord, question: GoldQuestion, rules: PairingRules) -> Explored:
    """Hold a tree's kept pairs against the truth. Margins need no division by alpha**layer: only their sign counts."""
    by_types: Counter[tuple[str, Verdict]] = Counter()
    by_layer: Counter[tuple[int, Verdict]] = Counter()
    right: list[tuple[str, int, int]] = []
    guesses = 0
    for pair in candidates(record, rules):
        if pair.dropped is None:
            chosen, rejected = record.nodes[pair.chosen.id], record.nodes[pair.rejected.id]
            verdict = verdict_of(question.worth(chosen) - question.worth(rejected))
            by_types[types_of(chosen.action_type, rejected.action_type), verdict] += 1
            by_layer[pair.state.layer, verdict] += 1
            right += [(pair.state.state_id, pair.chosen.id, pair.rejected.id)] * (verdict > 0)
            guesses += chosen.action_type == "answer" and not question.rests_on_facts(chosen)
    answers = (node for node in record.nodes if node.action_type == "answer")
    cause = cause_of(record)
    return Explored(
        question_id=record.question_id,
        requests=record.usage.requests,
        replies=record.usage.calls,
        prompt_tokens=record.usage.prompt_tokens,
        completion_tokens=record.usage.completion_tokens,
        mixed=len({each.quality for each in record.ends}) > 1,
        guesses=guesses,
        independent=_independent(right),
        by_types=by_types,
        by_layer=by_layer,
        answers=tuple(Answered(question.rests_on_facts(node), node.f1 == 1, node.grounded) for node in answers),
        cause=cause,
        finders=finders(cause, question),
    )


def _independent(pairs: Iterable[tuple[str, int, int]]) -> int:
    """How many comparisons are not implied by others, whatever they say: over states, the compared steps less the
    groups that comparisons join."""
    groups: list[tuple[str, set[int]]] = []
    for state, chosen, rejected in pairs:
        joined = [steps for where, steps in groups if where == state and not steps.isdisjoint({chosen, rejected})]
        groups = [each for each in groups if all(each[1] is not other for other in joined)]
        groups.append((state, set().union(*joined, {chosen, rejected})))
    return sum(len(steps) - 1 for _, steps in groups)


# -- the report ------------------------------------------------------------------------------------------------


def main(
    *,
    dataset: Annotated[str, typer.Option(help="hotpotqa, 2wikimultihopqa or musique")] = "hotpotqa",
    questions: Annotated[int, typer.Option(help="First questions of its dev, then of its train split")] = 300,
    skip: Annotated[int, typer.Option(help="Of these, leave so many out that come first")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the explorations")] = 0,
    data_dir: Annotated[Path, typer.Option(help="Directory that holds the data set")] = ROOT.parent / "shared" / "data",
    index_home: Annotated[Path, typer.Option(help="Where the index is, or is built")] = ROOT / INDEX_HOME,
    only: Annotated[Optional[str], typer.Option(help="Measure only this trial, for example economy")] = None,  # noqa: UP045 - typer reads it
    append: Annotated[Optional[Path], typer.Option(help="Also append the report to this file")] = None,  # noqa: UP045 - typer reads it
) -> None:
    """Measure what calls buy on real questions and print a report."""
    folder = data_dir.resolve() / dataset
    if not folder.is_dir():
        sys.exit(f"there is no {dataset} in {data_dir}; give --data-dir")
    if only and only not in TRIALS:
        sys.exit(f"there is no trial {only}; there are {', '.join(TRIALS)}")
    found = [
        each
        for split in SPLITS
        for each in open_questions(folder / f"{split}.jsonl", dataset=dataset, split=split).read(questions)
    ][skip:questions]
    trials = {only: TRIALS[only]} if only else TRIALS
    asked = Asked(open_world(folder, index_home), found, dataset, seed)
    publish(_report(asked, trials), append)


@dataclass(frozen=True)
class Asked:
    """What every trial is measured on."""

    world: World
    questions: Sequence[Question]
    dataset: str
    seed: int


def _report(asked: Asked, trials: Mapping[str, Trial]) -> Iterator[str]:
    questions = asked.questions
    for skill in SKILLS:
        trees = {
            name: explored(
                asked.world,
                questions[: max(1, round(each.share * len(questions)))],
                each.recipe,
                skill,
                fit_steps=each.fit_steps,
                gold_passages=each.gold_passages,
                seed=asked.seed,
            )
            for name, each in trials.items()
        }
        found = {
            name: [judge(record, question, trials[name].rules) for question, record in several]
            for name, several in trees.items()
        }
        yield from table(
            f"{len(questions)} {asked.dataset} questions, teacher `{skill.name}`: good {skill.good:g}, "
            f"right {skill.right:g}, early {skill.early:g}, luck {skill.luck:g} (requests to pairs: per question; in "
            f"brackets: {CONFIDENCE:.0%} of the bootstrap over questions)",
            _columns(found, _economy_row),
        )
        yield from table("Kept pairs by the types of both steps: right/wrong/tie", _columns(found, type_cells))
        if "economy" in found:
            yield from table(
                "What each filter leaves of the trees of `economy` (independent: without what other right pairs of the "
                "state imply)",
                _columns(
                    {
                        name: [judge(record, question, rules) for question, record in trees["economy"]]
                        for name, rules in FILTERS.items()
                    },
                    _filter_row,
                ),
            )
        yield from table("The same pairs and trees", _columns(found, _quality_row))
        causes = {name: [(each.cause, each.finders) for each in explored] for name, explored in found.items()}
        yield from table("Where the questions die", cause_rows(causes))


def _columns(found: Mapping[str, Sequence[Any]], cells: Callable[[Any], dict[str, str]]) -> dict[str, list[str]]:
    rows = {name: cells(explored) for name, explored in found.items()}
    heads = next(iter(rows.values()))
    names: list[str] = list(rows)
    return {"recipe": names} | {head: [row[head] for row in rows.values()] for head in heads}


def _filter_row(explored: Sequence[Explored]) -> dict[str, str]:
    dollars = sum(each.dollars for each in explored)
    return {
        "pairs": f"{sum(each.pairs for each in explored):,}",
        **verdict_cells(explored),
        "requests per right": f"{_ratio(explored, 'requests', 'right'):.1f}",
        "right per dollar": f"{sum(each.right for each in explored) / dollars:.0f}",
        "independent right per dollar": f"{sum(each.independent for each in explored) / dollars:.0f}",
        "with a right one": f"{statistics.fmean(each.right > 0 for each in explored):.2f}",
    }


def _economy_row(explored: Sequence[Explored]) -> dict[str, str]:
    def mean(name: str) -> float:
        return statistics.fmean(getattr(each, name) for each in explored)

    return {
        "requests": f"{mean('requests'):.0f}",
        "replies": f"{mean('replies'):.0f}",
        "tokens in": f"{mean('prompt_tokens'):,.0f}",
        "tokens out": f"{mean('completion_tokens'):,.0f}",
        "$": f"{mean('dollars'):.3f}",
        "pairs": f"{mean('pairs'):.2f}",
        **verdict_cells(explored),
        "requests per pair": with_interval(explored, lambda some: _ratio(some, "requests", "pairs"), ".1f", ".1f"),
        "requests per right": with_interval(explored, lambda some: _ratio(some, "requests", "right"), ".1f", ".1f"),
        "$ per right": with_interval(explored, lambda some: _ratio(some, "dollars", "right"), ".4f", ".4f"),
        "with a right pair": with_interval(explored, _solved, ".2f", ".2f"),
    }


def _quality_row(explored: Sequence[Explored]) -> dict[str, str]:
    layers = sorted({layer for each in explored for layer, _ in each.by_layer})
    by_layer = sum((each.by_layer for each in explored), Counter[tuple[int, Verdict]]())
    answers = [answer for each in explored for answer in each.answers]
    return {
        "questions with a pair": f"{statistics.fmean(each.pairs > 0 for each in explored):.2f}",
        "mixed outcomes": f"{statistics.fmean(each.mixed for each in explored):.2f}",
        "pairs without": f"{sum(each.pairs for each in explored if not each.mixed)}",
        "right/wrong/tie by layer": ", ".join(counts(by_layer, layer) for layer in layers),
        "chosen guesses": f"{_ratio(explored, 'guesses', 'pairs'):.2f}",
        "grounded answers with all facts": _grounded(each for each in answers if each.informed),
        "of golden ones without": _grounded(each for each in answers if not each.informed and each.golden),
        "of wrong ones without": _grounded(each for each in answers if not each.informed and not each.golden),
    }


def _grounded(answers: Iterable[Answered]) -> str:
    """Share of answers, yes and no apart, that string match calls grounded; and of how many."""
    judged = [each.grounded for each in answers if each.grounded is not None]
    return f"{statistics.fmean(judged):.3f} of {len(judged)}" if judged else "-"


def _solved(explored: Sequence[Explored]) -> float:
    """Share of questions with a right pair."""
    return statistics.fmean(each.right > 0 for each in explored)


def _ratio(explored: Sequence[Explored], above: str, below: str) -> float:
    sums = {name: float(sum(getattr(each, name) for each in explored)) for name in (above, below)}
    return sums[above] / max(1, sums[below])


if __name__ == "__main__":
    typer.run(main)
