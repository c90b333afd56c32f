"""`reasonrag warm-up`: rows to fine-tune on of questions with sub-questions, as ProRAG's first stage makes them
(arXiv 2601.21912), for any agent that searches and answers by itself.

Decides the order: questions that cannot be used, and those of evaluation splits, are left out before the teacher is
paid for them. Departures from the published builder: a row has the whole history, the model's own steps included; and a
thought or a search that has a later answer costs the question its rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preference import ExportOptions, PairingRules, PairSummary, QuestionError, Usage
from preference.candidate_records import Origin, QuestionRecord, question_key
from preference.export.atomic_export import staging_folder
from preference.export.private_files import atomic_replacement, write_file
from preference.export.summary import CANDIDATES, QUESTIONS
from reasonrag.agent.agent import Agent
from reasonrag.agent.prompting import Prompts, load_prompts
from reasonrag.agent.protocols.known import PROTOCOLS, renderer_hash
from reasonrag.agent.step_budget import most_searches
from reasonrag.concurrency import run_to_end
from reasonrag.curation.existing_data_set import OF_AN_IMPORT, made_from, replace_data_set, replaces_other_runs
from reasonrag.curation.export import DataSetExport
from reasonrag.curation.settings import CheckSettings, DecontaminationSettings, WarmUpSettings
from reasonrag.curation.sources import configured
from reasonrag.curation.warm_up.decompositions import CAUSES, LeftOut, Passages, gold_is_apart
from reasonrag.curation.warm_up.teaching import TEACHER, Decomposed, Found, Taught, Teaching
from reasonrag.data.compressed import plain_corpus
from reasonrag.data.datasets import find_data
from reasonrag.data.questions import QuestionFile, require_golden_answers
from reasonrag.data.settings import QuestionSettings
from reasonrag.errors import InputError
from reasonrag.files import DATA_HOME, only_writer, writing
from reasonrag.llm.budget import Caps, Tokens
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.model_spec import ModelSpec, check_prices, model_name
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.llm.settings import BudgetSettings, LimitSettings, ModelSettings
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.rendering import Line, Part, Table, counted, counts_text, dollars_or_unknown, next_command, warned
from reasonrag.retrieval.passage_length import reading_identity
from reasonrag.retrieval.settings import INDEX_HOME
from reasonrag.run.consent import cost_in_words
from reasonrag.run.engine import Budget, Role, claimed, open_run
from reasonrag.run_config import RunConfig, has_answers, recorded_effort, shown_settings
from reasonrag.settings import resolve
from reasonrag.signatures import public_call

TEACHING = "teaching"
"""Folder of the journal, the configuration and the failures, below the data set."""
RECIPE = "warm-up"
"""What its questions have in the place of a recipe."""


@public_call(WarmUpSettings)
def warm_up(
    *, chat_model: ChatModel | None = None, dry_run: bool = False, watcher: Watcher | None = None, **flags: Any
) -> PairSummary:
    """Make rows to fine-tune on of questions that come with sub-questions and their answers, as MuSiQue's do.

    Raises InputError where no question can be used, for an agent with a reader, and where `out` holds another data set;
    RunStopped where a cap or a lost endpoint ended it, KeyboardInterrupt after Ctrl-C: what was answered is kept, and
    the same call goes on.

    Example:
        >>> made = reasonrag.warm_up(questions="musique.jsonl", agent="prorag", model="offline")  # doctest: +SKIP

    Args:
        chat_model: the teacher, used instead of the one that the settings would open.
        dry_run: estimate the cost, send no request.
        watcher: is told what happens while it goes on; none: silent.
    """
    settings, told = resolve(WarmUpSettings, "warm-up", flags), watcher or SilentWatcher()
    plan = _plan(settings, chat_model, told)
    if dry_run:
        expected = run_to_end(plan.teaching(plan.model, plan.usable).expected(plan.usable, len(plan.usable)))
        caps = Caps.of(settings.part(BudgetSettings))
        cost, _ = cost_in_words([(plan.model, plan.model.expected(each)) for each in expected], caps, Tokens())
        return PairSummary(out=str(plan.out), warm_up=plan.counts({}) | {"expected": cost})
    with writing(plan.out):
        return run_to_end(_make(plan, chat_model, told))


@dataclass(frozen=True)
class _Plan:
    """What is to be made. left_out: why questions cannot be used, by their ids."""

    settings: WarmUpSettings
    model: ModelSpec
    prompts: Prompts
    source: QuestionFile
    passages: str
    out: Path
    usable: list[Decomposed]
    left_out: dict[str, QuestionError]

    def teaching(self, model: ModelSpec, wanted: Sequence[Decomposed]) -> Teaching:
        top_k, steps, seed = self.settings.top_k, self.settings.max_steps, self.settings.seed
        agent = Agent(OfflineTeacher(), Found({}), self.prompts, model.sampling, top_k, steps, seed)
        return Teaching(wanted, agent, model.limits.concurrency, model.price)

    def config(self, model: ModelSpec) -> RunConfig:
        given = self.settings
        decides_answers = {
            **self.source.identity,
            "model": model.name,
            "sampling": model.sampling.shown,
            "prompts": self.prompts.hash_with("rephrase", "narrate"),
            "retriever": self.passages,
            "top_k": given.top_k,
            "max_steps": given.max_steps,
            "seed": given.seed,
            **reading_identity(given.max_passage_chars, None),
            **self.prompts.agent_identity,
        }
        operational = {"questions": str(self.source.path), "hub_revision": self.source.revision}
        return RunConfig.of(decides_answers, operational | {"settings": shown_settings(given)})

    def origin(self, made: RunConfig) -> Origin:
        known = Origin(
            dataset=self.source.dataset,
            split=self.source.split,
            config_hash=made.config_hash,
            seed=self.settings.seed,
            recipe=RECIPE,
            renderer=renderer_hash(self.prompts),
            **self.prompts.agent_identity,
        )
        return configured(known, made)

    def write_questions(self, folder: Path, origin: Origin, taught: Mapping[str, Taught]) -> None:
        """Write the questions and what is known of them, in the order of their file."""
        with atomic_replacement(folder / QUESTIONS) as lines:
            for question in self.source.limited(self.settings.limit):
                usage, path, error = taught.get(question.id) or Taught(Usage(cost_usd=0.0))
                record = QuestionRecord(
                    question_id=question.id,
                    question=question.question,
                    golden_answers=question.golden_answers,
                    origin=origin,
                    error=error or self.left_out.get(question.id),
                    usage=usage,
                    path=path,
                )
                lines.write(record.to_line())

    def counts(self, taught: Mapping[str, Taught]) -> dict[str, Any]:
        """`warm_up` of the summary. gold_apart: ids of questions whose gold answer is none of the sub-answers."""
        errors = [*self.left_out.values(), *(each.error for each in taught.values() if each.error)]
        causes = Counter(each.cause for each in errors).most_common()
        return {
            "agent": self.prompts.agent,
            "teacher": self.model.name,
            "questions": len(self.usable) + len(self.left_out),
            "with_rows": sum(each.path is not None for each in taught.values()),
            "left_out": {cause: count for cause, count in causes if cause in CAUSES},
            "failed": {cause: count for cause, count in causes if cause not in CAUSES},
            "gold_apart": [each.question.id for each in self.usable if gold_is_apart(each.question, each.subs)],
        }


def _plan(settings: WarmUpSettings, chat_model: ChatModel | None, told: Watcher) -> _Plan:
    """Raises InputError for settings that do not go together, and where no question can be used."""
    asked, seed = settings.part(QuestionSettings), settings.seed
    prompts = load_prompts(settings.prompts, agent=settings.agent)
    if PROTOCOLS[prompts.agent].has_reader:
        can = ", ".join(name for name, each in PROTOCOLS.items() if not each.has_reader)
        raise InputError(f"--agent {prompts.agent}: a reader answers its queries in words of its own; take {can}")
    name = chat_model.name if chat_model else model_name(settings.part(ModelSettings), of_atlas=asked.of_atlas)
    model = ModelSpec.of(settings.part(ModelSettings), settings.part(LimitSettings), name)
    check_prices(told.say, model, given=settings.price, capped=settings.max_cost is not None)
    source, corpus = find_data(asked, require_golden_answers, INDEX_HOME, seed=seed, needs_corpus=False, say=told.say)
    corpus = corpus and plain_corpus(corpus, INDEX_HOME, say=told.say)
    passages = Passages(corpus, source.limited(settings.limit), settings.max_passage_chars)
    most = most_searches(settings.max_steps, prompts.agent)
    usable, left_out = list[Decomposed](), dict[str, QuestionError]()
    for question in source.limited(settings.limit):
        try:
            subs = passages.sub_questions(question, settings.top_k, seed, most)
            usable.append(Decomposed(question.model_copy(update={"metadata": {"style": question.style}}), subs))
        except LeftOut as left:
            left_out[question.id] = QuestionError(cause=left.cause, message=str(left))
    out = settings.out or DATA_HOME / asked.named(RECIPE)
    plan = _Plan(settings, model, prompts, source, passages.identity, out, usable, left_out)
    if not usable:
        [(first, why), *_] = left_out.items()
        causes = counts_text(plan.counts({})["left_out"])
        raise InputError(f"{source.path}: no question can be used: {causes}. Of question {first}: {why.message}")
    return plan


async def _make(plan: _Plan, chat_model: ChatModel | None, told: Watcher) -> PairSummary:
    """Raises what `warm_up` does."""
    settings, out, place = plan.settings, plan.out, plan.out / TEACHING
    export = DataSetExport(PairingRules(), CheckSettings(), settings.part(DecontaminationSettings), out)
    async with AsyncExitStack() as opened:

        async def open_model() -> ChatModel:
            nonlocal chat_model
            chat_model = chat_model or plan.model.open(opened, say=told.say)
            return chat_model

        model = await plan.model.settled(None if has_answers(place) else await open_model(), recorded_effort(place))
        config = plan.config(model)
        origin = plan.origin(config)
        replaced = replaces_other_runs(out, [], made_from([origin]), replace=settings.replace)
        opened.enter_context(only_writer(out, flag="--out"))
        opened.enter_context(claimed(place, config, flag="--out"))
        staged = opened.enter_context(staging_folder(out))
        write_file(staged / CANDIDATES, b"")
        plan.write_questions(staged, origin, {})
        gated = export.decontaminate(staged, [place])
        wanted = [each for each in plan.usable if question_key(each.question.question) not in gated.contaminated]
        work, budget = plan.teaching(model, wanted), settings.part(BudgetSettings)
        roles, allowed = {TEACHER: Role(model, open_model)}, Budget(Caps.of(budget), budget.yes)
        async with open_run(place, roles, told, allowed, recorded_in=place) as run:
            await run.complete(work, work)
        plan.write_questions(staged, origin, work.taught)
        options = ExportOptions(("proguide", "sft"), validation=settings.validation, seed=settings.seed)
        warnings = ["the teacher is offline, which thinks nothing: for a rehearsal only"] * (model.name == OFFLINE)
        made = plan.counts(work.taught)
        summary = export.write(staged, [place], gated, options=options, counts={"warm_up": made}, warnings=warnings)
        replace_data_set(staged, out, told.say, obsolete=OF_AN_IMPORT if replaced else ())
    return summary


def warm_up_parts(summary: PairSummary) -> Iterator[Part]:
    """What was made, or what it will cost, and the next command."""
    made, out = summary.warm_up, Path(summary.out)
    rows: list[tuple[str, object]] = [
        (name.replace("_", " "), made[name]) for name in ("questions", "left_out", "failed")
    ]
    rows += [("gold answer apart, kept", len(made["gold_apart"]) or "")]
    rows += [("in an evaluation split", summary.contamination.get("dropped") or "")]
    rows += [("with rows", made["with_rows"])] if summary.usage else []
    cost = dollars_or_unknown(summary.usage.cost_usd) if summary.usage else made.get("expected")
    rows += [("cost", cost)]
    yield Table(f"warm-up  agent {made['agent']}  teacher {made['teacher']}", rows)
    yield from warned(summary.warnings)
    yield from (Line(f"wrote {out / name} ({counted(count, 'row')})") for name, count in summary.files.items() if count)
    if summary.files:
        yield Line(f"why questions were left out: {out / QUESTIONS}")
    if made["with_rows"]:
        yield next_command("train", "CONFIG", "--data", out)
