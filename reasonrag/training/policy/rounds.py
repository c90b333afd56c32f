"""`reasonrag rounds`: a model draws attempts and learns from them, and the model that this makes draws the next ones.

Decides what a round is made of, which model draws in it, and when rounds end early. A round is an ordinary run, an
ordinary data set and an ordinary model folder; how each is made, `generate`, `pairs` and the trainings decide.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from preference.export.private_files import write_file, write_json
from preference.export.summary import SUMMARY
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.agent.recipe_file import DEFAULT_RECIPE
from reasonrag.concurrency import run_to_end
from reasonrag.curation.pairs import pairs
from reasonrag.curation.publish_blockers import Blocker, evaluation_blockers
from reasonrag.errors import CapReached, InputError, NothingToLearn, RunStopped, WaitTooLong
from reasonrag.exploration.explore import Given, explore
from reasonrag.exploration.plan import Plan
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.summary import RunSummary, StopReason
from reasonrag.files import read_record
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.critic import check_critic, find_critic
from reasonrag.model_folder import fingerprint, open_model, read_json
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.rendering import Line, Part, Shown, Table, counted, markdown_page, percent
from reasonrag.retrieval.opening import object_or_name
from reasonrag.retrieval.retriever import Retriever
from reasonrag.retrieval.settings import RetrievalSettings
from reasonrag.run_config import changed_keys
from reasonrag.serving.local_server import served
from reasonrag.settings import SETTINGS_FILE, flag_of, flags_decide, resolve
from reasonrag.signatures import public_call
from reasonrag.training.doctor.doctor import doctor
from reasonrag.training.llamafactory.config_files import changes_of, find_config
from reasonrag.training.llamafactory.merge import MERGED, merge_adapter
from reasonrag.training.output_directory import refuse_another
from reasonrag.training.policy.round_measures import HEAD, Round
from reasonrag.training.policy.train import train_policy
from reasonrag.training.preflight_checks import Permissions, PreflightFindings
from reasonrag.training.provenance import evaluation_of, read_provenance
from reasonrag.training.settings import DRAWN_BY, NOT_OF_ROUNDS, RoundsSettings
from reasonrag.training.stages.runner import Stage, read_stages, run_stages
from reasonrag.training.stages.training import TrainingResult
from reasonrag.training.train import train

RECIPE: Final = "rounds"
MODEL: Final = "model"
"""A link to the newest model that is worth evaluating, in the folder of the rounds."""
PAGE: Final = "rounds.md"
DRAWN: Final = "drawn_by.json"
"""In a round's folder: what its attempts were drawn by."""
_FORMATS: Final = {"policy": ["rl"], "sft": ["sft"], "kto": ["kto"], "dpo": []}
_FOLDS: Final = 2
_MOST_UNREADABLE: Final = 1 / 3
_MOST_LOOPS: Final = 0.01


class RoundsResult(BaseModel, Shown):
    """What `rounds` came to; the object of `rounds --json`."""

    run: str
    train: str
    rounds: list[Round]
    model: str | None
    """The newest model that is worth evaluating; None if no round made one."""

    def shown(self) -> Iterator[Part]:
        yield from self.parts()
        yield Line(f"wrote {Path(self.run) / PAGE}")
        if self.model:
            yield evaluation_of(Path(self.model))

    def parts(self) -> Iterator[Part]:
        """Of the terminal and the page: a row per round."""
        yield Table(f"rounds by {self.train}", [each.row() for each in self.rounds], HEAD)
        yield (
            "A row is of the attempts that a model drew before it learned from them. unreadable, loops: shares of "
            "replies. searches: per attempt. tokens: per reply. entropy, distance: per token of a reply, in nats; the "
            "distance is to the model of round 1. spent: on drawing, or the seconds of the round with its training"
        )
        failed = {each.round: each.failed for each in self.rounds if each.failed}
        yield from (f"round {n}: {counted(count, 'question')} failed, see its run" for n, count in failed.items())
        yield from (f"stopped early: {each.stopped}" for each in self.rounds if each.stopped)


@public_call(RoundsSettings, GenerateSettings, without=NOT_OF_ROUNDS)
def rounds(
    config: str | Path | None = None,
    *,
    chat_model: Callable[[Path], ChatModel] | None = None,
    retriever: Retriever | str | None = None,
    watcher: Watcher | None = None,
    train_critic: Callable[..., Any] | None = None,
    **flags: Any,
) -> RoundsResult:
    """Let a model draw attempts at questions and learn from them, round by round.

    Each round is a run, a data set and a model in a folder of its own; the same call goes on where it was stopped, or
    with more rounds. Raises InputError before anything is drawn, and what `generate`, `pairs` and the trainings raise.

    Example:
        >>> reasonrag.rounds("policy-smoke-cpu", model="models/student", run="runs/rl")  # doctest: +SKIP

    Args:
        config: a YAML file, or the bare name of a shipped one. None: `config` of reasonrag.toml.
        chat_model: what answers for a model's folder, under the folder's name; none: the folder is served here.
        retriever: used instead of the one that the settings would build, or its name, as `retriever` in
            reasonrag.toml.
        watcher: is told what happens while it goes on; none: silent.
        train_critic: who retrains critics, if `critic` is a configuration: `reasonrag.train_critic`, which the command
            line gives.
    """
    retriever, named = object_or_name(retriever)
    flags |= named | {"config": None if config is None else str(config)}
    own = {name: value for name, value in flags.items() if name in RoundsSettings.model_fields}
    others = {name: value for name, value in flags.items() if name not in own}
    if given := [flag_of(name) for name in NOT_OF_ROUNDS if others.get(name) not in (None, [])]:
        raise InputError(f"rounds has no {given[0]}; it draws with what each round made, at its own distribution")
    settings = resolve(RoundsSettings, "rounds", own)
    made = _Rounds(settings, others, chat_model, retriever, watcher or SilentWatcher(), train_critic)
    decides, numbers = made.check(), range(1, settings.rounds + 1)
    stages = [Stage(f"round {number}", decides, partial(made.work, number, decides)) for number in numbers]
    run_stages(settings.run, RECIPE, stages, made.watcher.say, flag="--run")
    return made.result(rounds_in(settings.run))


@dataclass(frozen=True)
class _Rounds:
    """others: settings of `generate`. The rest as `rounds` takes it."""

    settings: RoundsSettings
    others: Mapping[str, Any]
    chat_model: Callable[[Path], ChatModel] | None
    retriever: Retriever | None
    watcher: Watcher
    train_critic: Callable[..., Any] | None

    def folder(self, number: int) -> Path:
        return self.settings.run / f"round-{number}"

    def model(self, number: int) -> Path:
        """That draws in a round. Each round makes that of the next one."""
        made = self.folder(number - 1) / f"{self.settings.train}-{number - 1}"
        return made if number > 1 else self.settings.model.resolve()  # it is served under the name of the folder

    def changes(self, of: str) -> list[str]:
        """What --set changes in the configuration of the training or of the critic; of "recipe": all others."""
        parts = {each: each.partition(".") for each in self.settings.set}
        if of == "recipe":
            return [each for each, (first, _, _) in parts.items() if first not in ("train", "critic")]
        return [rest for first, _, rest in parts.values() if first == of]

    @property
    def config(self) -> dict[str, Any]:
        group = "policies" if self.settings.train == "policy" else ""
        return find_config(self.settings.config, group).values | changes_of(self.changes("train"))

    @property
    def retrains(self) -> bool:
        """Whether the critic is a configuration, and not a folder."""
        return self.settings.critic is not None and not Path(self.settings.critic).is_dir()

    def drawing(self, number: int, **more: Any) -> GenerateSettings:
        """Settings of a round's run. Each has another seed, by which --sample draws other questions, too."""
        chains = self.settings.train in ("policy", "sft")
        group = [f"search.group={self.settings.group}"] if chains else []
        told = {
            "run": self.folder(number) / "run",
            "model": self.model(number).name,
            "recipe": "chains" if chains else DEFAULT_RECIPE,
            "prompts": self.settings.prompts,
            "abort_degenerate": 0.0,  # rounds have rules of their own
            "yes": self.others.get("yes") or number > 1 or None,  # asked once
        }
        found = resolve(GenerateSettings, "generate", {**self.others, **told, **more})
        changes = [*group, *self.changes("recipe")]  # and none of [generate], which are of another recipe
        prices = [f"{self.model(number).name}=0,0", *found.price]
        return found.model_copy(update={"seed": found.seed + number - 1, "set": changes, "price": prices})

    def check(self) -> dict[str, Any]:
        """What all rounds are made from. Raises InputError for what would stop a round after drawing."""
        settings, config, model = self.settings, self.config, open_model(self.settings.model)
        stage = config.get("stage", "policy")
        if stage != settings.train:
            raise InputError(f"{settings.config} is a configuration of {stage}: give --train {stage}, or another one")
        if model.is_adapter or model.is_classifier:
            raise InputError(f"{model.path} is an adapter or a critic, and rounds begin with a whole model")
        if config.get("advantage") == "prorag" and settings.critic is None:
            raise InputError("advantage prorag needs scores of the steps: give --critic, a folder or a configuration")
        critic: str | dict[str, Any] | None = None
        if self.retrains:
            critic = find_config(str(settings.critic), "critics").values | changes_of(self.changes("critic"))
            if self.train_critic is None:
                raise InputError("--critic is a configuration: give train_critic=reasonrag.train_critic, too")
        elif settings.critic:
            critic = find_critic(settings.critic).name
        drawn = self._check_drawing(stage)
        if not rounds_in(settings.run):
            self._check_training(str(settings.config), "train")
            if self.retrains:
                self._check_training(str(settings.critic), "critic")
        return {
            "model": f"{model.name}@{fingerprint(model)}",
            "train": settings.train,
            "config": config,
            "critic": critic,
            "draw": drawn,
        }

    @flags_decide()
    def _check_training(self, config: str, changes: str) -> None:
        """Raises InputError for what `doctor` finds wrong with a configuration, the model and this machine."""
        model = f"model_name_or_path={self.model(1)}"
        found = doctor(config, set=[model, *self.changes(changes)])
        if wrong := [each for each in found.errors if each.name not in self.settings.allow]:
            says = (f"{each.says}{'' if '--allow' in each.says else f' (--allow {each.name})'}" for each in wrong)
            raise InputError("; ".join(says))

    def _check_drawing(self, stage: str) -> dict[str, Any]:
        """What decides the attempts of all rounds, but for what an index holds. Raises InputError."""
        settings, drawing = self.settings, self.drawing(1)
        acts = drawing.resolved_recipe.agent
        if stage == "policy" and (acts.temperature, acts.top_p) != (1.0, 1.0):
            raise InputError("a policy learns from what it draws at temperature 1 and agent.top_p=1; leave them so")
        if drawing.value_model or drawing.resolved_recipe.outcome in ("judge", "rubric"):
            raise InputError(
                "rounds have one model, which must not judge itself: no outcome of a judge, and no value model in "
                f"[generate] of {SETTINGS_FILE}"
            )
        plan = Plan.of(drawing.model_copy(update={"sample": None}))  # each round draws others of all
        source, corpus = plan.find_data(self.watcher.say, searched=self.retriever is None)
        asked = [each.question for each in source.limited(None if drawing.sample else drawing.limit)]
        found, known = evaluation_blockers({source.name: len(asked)}, {}), read_provenance(settings.model)
        if known and known.asked.renderer not in (None, renderer_hash(plan.prompts)):
            says = f"{settings.model} was trained on other prompts than it would be asked with: give its --prompts or"
            found.append(Blocker("--allow", "base_renderer", f"{says} its --agent"))
        PreflightFindings(Permissions(None, settings.allow, settings.allow_eval), found).refuse()
        if self.retrains and known and (seen := len(known.trained_on(asked))):
            raise InputError(
                f"{settings.model} was trained on {seen:,} of these {len(asked):,} questions, and so are critics that "
                "begin with it: take others, or a folder as --critic"
            )
        if settings.critic and not self.retrains:
            critic, renderer, allowed = find_critic(settings.critic), renderer_hash(plan.prompts), settings.allow_critic
            check_critic(critic, renderer=renderer, questions=(), allowed=allowed, warn=self.watcher.warn)
            if seen := sum(map(critic.trained_on, asked)):
                raise InputError(
                    f"the critic {critic.name} was trained on {seen:,} of these {len(asked):,} questions and does not "
                    "score them: take others, or a configuration as --critic, by which each round trains its own"
                )
        retrieval = {"index": [str(each.resolve()) for each in drawing.index], "corpus": corpus and str(corpus)}
        retrieval["retriever"] = None if drawing.part(RetrievalSettings).is_remote else drawing.retriever
        return {
            **source.identity,
            **drawing.model_dump(mode="json", include=DRAWN_BY - {"questions", "data_dir"}),
            **retrieval,
            "prompts": plan.prompts.hash_with(),
            "recipe": plan.recipe.model_dump(mode="json"),
        }

    def work(self, number: int, decides: Mapping[str, Any]) -> dict[str, Any]:
        """A round: its attempts, unless they were drawn, and what is learned from them. Raises what these raise."""
        began, run = time.monotonic(), self.folder(number) / "run"
        of_drawing, kept = {name: decides[name] for name in ("model", "train", "draw")}, self.folder(number) / DRAWN
        if kept.is_file():  # the training may be another one after a refusal, attempts and model may not
            refuse_another(self.settings.run, changed_keys(read_json(kept), of_drawing), flag="--run")
        drawn = read_record(run / SUMMARY, RunSummary, "Take another --run")
        if drawn is None or drawn.stopped or not drawn.done:
            drawn = run_to_end(self._draw(number))
            if drawn.stopped:
                raise stopped_in(number, drawn.stopped)
        write_json(kept, of_drawing, shared=True)
        found, before = Round.measured(number, self.model(number).name, run, drawn), rounds_in(self.settings.run)
        found.stopped = reason_to_end(found, before)
        newest = max([each.round for each in before if each.loops <= _MOST_LOOPS], default=1)
        if found.stopped is None:
            try:
                lengths, newest = self._learn(number, self.drawing(number).prompts).record.lengths, number + 1
                found.entropy, found.distance = lengths.get("entropy"), lengths.get("distance")
            except NothingToLearn as error:
                found.stopped, newest = f"round {number} teaches nothing: {error}", number
            except InputError:
                for made in ("data", "pairs", "critic") if number == 1 else ():  # its settings may be others next time
                    shutil.rmtree(self.folder(number) / made, ignore_errors=True)
                raise
        link_to(self.settings.run / MODEL, self.model(newest))
        found.seconds = round(time.monotonic() - began, 1)
        result = self.result([*before, found])
        page = markdown_page(f"Rounds from {self.settings.model.name}", result.parts())
        write_file(self.settings.run / PAGE, page.encode(), shared=True)
        return found.model_dump()

    async def _draw(self, number: int) -> RunSummary:
        folder, drawing = self.model(number), partial(self.drawing, number)
        if self.chat_model:
            return await explore(drawing(), self.watcher, Given(self.chat_model(folder), None, self.retriever))
        async with served(folder, say=self.watcher.say) as server:
            given = Given(retriever=self.retriever)
            return await explore(drawing(base_url=[server.base_url]), self.watcher, given)

    @flags_decide()
    def _learn(self, number: int, prompts: Path | None) -> TrainingResult:
        """The data of the round, and the model that it makes. prompts: that were drawn with, if they are the user's."""
        settings, folder, watcher = self.settings, self.folder(number), self.watcher
        run, data, out = folder / "run", folder / "data", self.model(number + 1)
        base = [f"model_name_or_path={self.model(number)}"]
        permitted = {"prompts": prompts, "allow": settings.allow, "allow_eval": settings.allow_eval}
        told: dict[str, Any] = {**permitted, "watcher": watcher}
        if not (data / SUMMARY).is_file():
            critics = [settings.critic] if settings.critic else []
            if self.train_critic and self.retrains:
                pairs(run, out=folder / "pairs", validation=0, watcher=watcher)
                first = f"model_name_or_path={self.model(1)}"  # which has learned from none of these questions
                of_it = {"data": folder / "pairs", "out": folder / "critic", "set": [first, *self.changes("critic")]}
                try:
                    trained = self.train_critic(settings.critic, folds=_FOLDS, **of_it, **told)
                    critics = [each.out for each in trained.folds]
                except NothingToLearn as error:
                    raise NothingToLearn(f"too few questions have pairs for {_FOLDS} critics: {error}") from error
            consensus = bool(critics) and settings.train in ("dpo", "kto")
            by: dict[str, Any] = {"critic": critics, "allow_critic": settings.allow_critic, "consensus": consensus}
            made = pairs(run, out=data, format=_FORMATS[settings.train], validation=0, watcher=watcher, **by)
            if not any(made.files.values()):
                raise NothingToLearn(f"{data} has no rows; its dropped.jsonl says why")
        told |= {"data": data, "set": [*base, *self.changes("train")]}
        if settings.train == "policy":
            told["set"] += [f"start={self.model(1)}"] if number > 1 else []
            return train_policy(settings.config, out=out, **told)
        if self.config.get("finetuning_type", "lora") != "lora":
            return train(settings.config, out=out, **told)
        found = train(settings.config, out=folder / "adapter", **told)
        if not (out / MERGED).is_file():
            shutil.rmtree(out, ignore_errors=True)  # of a merge that was stopped
            merge_adapter(folder / "adapter", out, [], allow=settings.allow, watcher=watcher)
        return found

    def result(self, reports: list[Round]) -> RoundsResult:
        link = self.settings.run / MODEL
        model = str(link) if link.is_symlink() else None
        return RoundsResult(run=str(self.settings.run), train=self.settings.train, rounds=reports, model=model)


def rounds_in(folder: Path) -> list[Round]:
    """What is known of the rounds of a folder that are done; none of a folder of something else."""
    record = read_stages(folder)
    if record is None or record.recipe != RECIPE:
        return []
    return [Round.model_validate(each.result) for each in record.stages if each.state == "done"]


def reason_to_end(now: Round, before: Sequence[Round]) -> str | None:
    """Why rounds end with these attempts; None: they go on. before: the rounds before."""
    if before and now.unreadable > max(_MOST_UNREADABLE, before[0].unreadable):
        return f"{percent(now.unreadable, 0)} of the replies of round {now.round} cannot be read, more than a third"
    if before and min(now.loops, before[-1].loops) > max(_MOST_LOOPS, before[0].loops):
        return f"replies of rounds {before[-1].round} and {now.round} repeat themselves"
    return None


def stopped_in(number: int, why: StopReason) -> RunStopped:
    """As `generate` ends with it."""
    capped = why.cause in (CapReached.cause, WaitTooLong.cause)
    found = RunStopped(f"round {number}: {why.message}")
    found.cause, found.raised = why.cause, why.raise_cap
    found.exit_status = CapReached.exit_status if capped else RunStopped.exit_status
    return found


def link_to(link: Path, target: Path) -> None:
    """Point a link at a folder, atomically."""
    new = link.with_name(f".{link.name}")
    new.unlink(missing_ok=True)
    new.symlink_to(os.path.relpath(target.resolve(), link.parent.resolve()))
    new.replace(link)
