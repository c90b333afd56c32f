"""`reasonrag warm-up`: rows to fine-tune on of questions with sub-questions, as ProRAG's first stage makes them
(arXiv 2601.21912), for any agent that searches and answers by itself.

Decides the order: questions that cannot be used, and those of evaluation splits, are left out before the teacher is
paid for them. Departures from the published builder: a row has the whole history, the model's own steps included; and a
thought or a search that has a later answer costs the question its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preference import ExportOptions, PairingRules, PairSummary
from preference.candidate_records import Origin, QuestionRecord
from preference.export.atomic_export import staging_folder
from preference.export.private_files import atomic_replacement, write_file
from preference.export.summary import CANDIDATES, QUESTIONS
from reasonrag.agent.agent import Agent
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.protocols.known import PROTOCOLS, most_searches, renderer_hash
from reasonrag.concurrency import run_to_end
from reasonrag.curation.existing_data_set import OF_AN_IMPORT, made_from, replace_data_set, replaces_other_runs
from reasonrag.curation.export import DataSetExport
from reasonrag.curation.left_out import LeftOut
from reasonrag.curation.settings import CheckSettings, DecontaminationSettings, WarmUpSettings
from reasonrag.curation.sources import configured
from reasonrag.curation.warm_up.decompositions import Passages
from reasonrag.curation.warm_up.teaching import TEACHER, Chosen, Decomposed, Taught, Teaching
from reasonrag.data.compressed import plain_corpus
from reasonrag.data.datasets import find_data
from reasonrag.data.questions import Questions, require_golden_answers
from reasonrag.data.settings import QuestionSettings
from reasonrag.errors import InputError
from reasonrag.files import DATA_HOME, only_writer, writing
from reasonrag.llm.budget import Caps, Tokens
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.model_spec import LazyModel, ModelSpec, check_prices, model_name
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
        work, caps = plan.work, Caps.of(settings.part(BudgetSettings))
        [expected] = run_to_end(work.expected(work.decomposed))
        cost, _ = cost_in_words([(work.model, work.model.expected(expected))], caps, Tokens())
        return PairSummary(out=str(plan.out), warm_up=work.counts() | {"expected": cost})
    with writing(plan.out):
        return run_to_end(_make(plan, chat_model, told))


@dataclass(frozen=True)
class _Plan:
    """What is made, and where. passages: their identity. work: of usable questions; its `taught` has the others."""

    settings: WarmUpSettings
    questions: Questions
    passages: str
    work: Teaching
    out: Path

    def config(self, model: ModelSpec) -> RunConfig:
        given, prompts, source = self.settings, self.work.agent.prompts, self.questions.source
        asked = {"model": model.name, "sampling": model.sampling.shown, "retriever": self.passages}
        asked |= {name: getattr(given, name) for name in ("top_k", "max_steps", "seed")}
        asked |= {"prompts": prompts.hash_with("rephrase", "narrate"), **prompts.agent_identity}
        asked |= source.identity | reading_identity(given.max_passage_chars, None)
        operational = {"questions": str(source.path), "hub_revision": source.revision}
        return RunConfig.of(asked, operational | {"settings": shown_settings(given)})

    def origin(self, made: RunConfig) -> Origin:
        source, prompts = self.questions.source, self.work.agent.prompts
        about = {"config_hash": made.config_hash, "seed": self.settings.seed, **prompts.agent_identity}
        known = Origin(dataset=source.dataset, split=source.split, recipe=RECIPE, renderer=renderer_hash(prompts))
        return configured(known.model_copy(update=about), made)

    def write_questions(self, folder: Path, origin: Origin) -> None:
        """Write the questions and what is known of them, in the order of their file."""
        with atomic_replacement(folder / QUESTIONS) as lines:
            for each in self.questions:
                known = {"origin": origin, **self.work.taught.get(each.id, Taught())._asdict()}
                asked = {"question": each.question, "golden_answers": each.golden_answers}
                lines.write(QuestionRecord(question_id=each.id, **asked, **known).to_line())


def _plan(settings: WarmUpSettings, chat_model: ChatModel | None, told: Watcher) -> _Plan:
    """Raises InputError for settings that do not go together, and where no question can be used."""
    asked, top_k, steps, seed = settings.part(QuestionSettings), settings.top_k, settings.max_steps, settings.seed
    prompts = load_prompts(settings.prompts, agent=settings.agent)
    if PROTOCOLS[prompts.agent].has_reader:
        can = ", ".join(name for name, each in PROTOCOLS.items() if not each.has_reader)
        raise InputError(f"--agent {prompts.agent}: a reader answers its queries in words of its own; take {can}")
    name = chat_model.name if chat_model else model_name(settings.part(ModelSettings), of_atlas=asked.of_atlas)
    model = ModelSpec.of(settings.part(ModelSettings), settings.part(LimitSettings), name)
    check_prices(told.say, model, given=settings.price, capped=settings.max_cost is not None)
    source, corpus = find_data(asked, require_golden_answers, INDEX_HOME, seed=seed, needs_corpus=False, say=told.say)
    corpus, questions = corpus and plain_corpus(corpus, INDEX_HOME, say=told.say), source.limited(settings.limit)
    passages = Passages(corpus, questions, settings.max_passage_chars)
    agent = Agent(OfflineTeacher(), Chosen(iter(())), prompts, model.sampling, top_k, steps, seed)
    work, most = Teaching([], agent, model), most_searches(steps, prompts.agent)
    for each in questions:
        try:
            subs = passages.sub_questions(each, top_k, seed, most)
            work.decomposed.append(Decomposed(each.model_copy(update={"metadata": {"style": each.style}}), subs))
        except LeftOut as left:
            work.taught[each.id] = Taught(error=left.error)
    if not work.decomposed:
        causes, [(first, why), *_] = counts_text(work.counts()["left_out"]), work.taught.items()
        said = why.error and why.error.message
        raise InputError(f"{source.path}: no question can be used: {causes}. Of question {first}: {said}")
    return _Plan(settings, questions, passages.identity, work, settings.out or DATA_HOME / asked.named(RECIPE))


async def _make(plan: _Plan, chat_model: ChatModel | None, told: Watcher) -> PairSummary:
    """Raises what `warm_up` does."""
    settings, all_of_it, out, place = plan.settings, plan.work, plan.out, plan.out / TEACHING
    export = DataSetExport(PairingRules(), CheckSettings(), settings.part(DecontaminationSettings), out)
    async with AsyncExitStack() as opened:
        teacher, begun = LazyModel(all_of_it.model, opened, told.say, chat_model), has_answers(place)
        model = teacher.spec = await teacher.spec.settled(None if begun else await teacher(), recorded_effort(place))
        config = plan.config(model)
        origin = plan.origin(config)
        replaced = replaces_other_runs(out, [], made_from([origin]), replace=settings.replace)
        opened.enter_context(only_writer(out, flag="--out"))
        opened.enter_context(claimed(place, config, flag="--out"))
        staged = opened.enter_context(staging_folder(out))
        write_file(staged / CANDIDATES, b"")
        plan.write_questions(staged, origin)
        gated = export.decontaminate(staged, [place])
        work, budget = all_of_it.of(model, without=gated.contaminated), settings.part(BudgetSettings)
        if not work.decomposed:
            raise InputError("every usable question is in an evaluation split: give others, or --allow-eval NAME")
        roles, allowed = {TEACHER: Role(model, teacher)}, Budget(Caps.of(budget), budget.yes)
        async with open_run(place, roles, told, allowed, recorded_in=place) as run:
            await run.complete(work, work)
        plan.write_questions(staged, origin)
        options = ExportOptions(("proguide", "sft"), validation=settings.validation, seed=settings.seed)
        warnings = ["the teacher is offline, which thinks nothing: for a rehearsal only"] * (model.name == OFFLINE)
        made = PairSummary(warm_up=all_of_it.counts(), warnings=warnings)
        summary = export.write(staged, [place], gated, options, made)
        replace_data_set(staged, out, told.say, obsolete=OF_AN_IMPORT if replaced else ())
    return summary


def warm_up_parts(summary: PairSummary) -> Iterator[Part]:
    """What was made, or what it will cost, and the next command."""
    made, out, usage = summary.warm_up, Path(summary.out), summary.usage
    rows: dict[str, object] = {each.replace("_", " "): made[each] for each in ("questions", "left_out", "failed")}
    rows |= {"gold answer apart, kept": len(made["gold_apart"]) or ""}
    rows |= {"in an evaluation split": summary.contamination.get("dropped") or ""}
    rows |= {"with rows": made["with_rows"] if usage else ""}
    rows |= {"cost": dollars_or_unknown(usage.cost_usd) if usage else made["expected"]}
    yield from warned(summary.warnings)
    yield Table(f"warm-up  agent {made['agent']}  teacher {made['teacher']}", rows.items())
    yield from (Line(f"wrote {out / name} ({counted(count, 'row')})") for name, count in summary.files.items() if count)
    if summary.files:
        yield Line(f"questions, and why some were left out: {out / QUESTIONS}")
    if made["with_rows"]:
        name = "prorag-sft" if made["agent"] == "prorag" else "qwen2.5-7b-sft"
        yield next_command("train", name, "--data", out)
