"""The whole settings of `pairs`, which its command and its call alone see, and the records that only they read."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from preference import ExportOptions, PairingRules
from preference.export.formats import CONVERSATIONS, OF_PLAIN_STEPS, FormatName
from preference.export.summary import VALIDATION_SHARE
from preference.filters import AS_PUBLISHED
from reasonrag.curation.settings import CheckSettings, DecontaminationSettings, KeptApart
from reasonrag.errors import InputError
from reasonrag.llm.settings import BudgetSettings, LimitSettings, ModelSettings
from reasonrag.settings import SEVERAL, Limit, Opposite, Panel, PlacesOrNames, Seed, Settings, Share, flag_of, setting

_RULES = PairingRules()
CRITIC_SHARE = 0.33
"""As the level of a pairwise critic's scores means nothing, and all of ours are: docs/explanation/critics.md."""
Accept: TypeAlias = Annotated[bool, Opposite(None), Panel.PAIRING]
accepts = partial(setting, default=False)
Portion: TypeAlias = Annotated[Share, Panel.PAIRING]
Most: TypeAlias = Annotated[Limit, Panel.PAIRING]


class DataSetSettings(Settings):
    """Where a data set is written, and as what; how good a pair must be, and what is accepted all the same."""

    out: Path | None = setting("Folder of the data set [default: data/<name of the run>]", Panel.OUTPUT, common=True)
    replace: bool = setting("Replace a data set that was made from other runs", Panel.OUTPUT, default=False)
    format: Annotated[list[FormatName], SEVERAL, Panel.OUTPUT] = setting(
        "Also write this format: sharegpt, kto, reward, sft, sft-chosen, trl, rl, tools, tools-sharegpt, messages, "
        "messages-sharegpt, attempts or prompts; repeatable. RAG_ProGuide is always written",
        default=[],
        common=True,
    )
    validation: KeptApart = setting(
        "Share of questions with a pair to hold out for validation; 0: none", default=VALIDATION_SHARE, common=True
    )
    hold_out: KeptApart = setting(
        "Share of questions to keep for reinforcement: no row is made of them, and held_out.jsonl lists them",
        default=0.0,
    )
    flip: Share = setting(
        "Share of training pairs whose sides are swapped, to study label noise", Panel.OUTPUT, default=0.0
    )
    seed: Seed = setting(
        "Seed of the validation split, of --hold-out and --flip, and of the order of steps shown to a judge "
        "(another seed asks the judge again)",
        Panel.OUTPUT,
        default=0,
    )
    min_margin: float = setting(
        "Minimum difference between the rewards of the two steps", Panel.PAIRING, default=_RULES.min_margin, ge=0
    )
    min_confidence: Portion = setting(
        "Minimum probability that the chosen step is really the better one", default=_RULES.min_confidence, common=True
    )
    min_draws: int = setting(
        "Minimum effective sample size of each step, unless both are answers", Panel.PAIRING, default=1, ge=1
    )
    max_similarity: Portion = setting(
        "Maximum share of words that the two steps have in common; 1: no limit", default=_RULES.max_similarity
    )
    max_per_state: Most = setting(
        "Maximum pairs per state, highest confidence first; 0: no limit", default=_RULES.max_per_state or 0
    )
    max_row_tokens: Most = setting(
        "Maximum tokens of prompt and reply together; 0: no limit", default=_RULES.max_row_tokens or 0
    )
    max_efficiency_only: Portion = setting(
        "Maximum share of pairs that differ only in the number of steps to the answer; 1: no limit",
        default=_RULES.max_efficiency_only,
    )
    max_style_only: Portion = setting(
        "Maximum share of answer pairs that differ only in style (equal by cover-EM); 1: no limit",
        default=_RULES.max_style_only,
    )
    allow_malformed: Accept = accepts("Accept unparsable replies as rejected steps")
    allow_ungrounded: Accept = accepts("Accept chosen steps that no passage supports")
    allow_cut_prompts: Accept = accepts("Accept pairs of states whose prompt the endpoint cut")
    allow_repeated_query: Accept = accepts("Accept chosen queries that repeat an earlier one on their path")
    allow_same_findings: Accept = accepts(
        "Accept pairs of steps that reveal the same, although their continuations do not tell them apart"
    )
    consensus: Accept = accepts(
        "Keep a pair only if a second witness agrees: the values, with --label judge; else the critics", common=True
    )
    as_published: Accept = accepts(
        "Label and filter as the published system whose recipe made the runs (ReasonRAG, ProRAG, RAG-Gym) does, "
        "without the filters above"
    )


class LabelSettings(Settings):
    """Who labels the pairs, and what a judge is shown."""

    label: Literal["value", "judge", "outcome"] = setting(
        "Source of the labels: value (rewards of the search; free), judge (--model picks a better and a worse step of "
        "each state, or none) or outcome (of the one trajectory in which a step was first drawn; free)",
        Panel.LABELS,
        default="value",
        common=True,
    )
    judge_gold: bool = setting("Show the judge the gold answers", Panel.LABELS, default=False)
    prompts: Path | None = setting("Folder with your own prompts; the judge's is pick.txt", Panel.LABELS)
    critic: PlacesOrNames = setting(
        "Folder of a critic: a witness of --consensus; with --format sft it keeps only paths whose every step "
        "scores --critic-threshold. Repeatable: none judges a question that it was trained on (train-critic --folds)",
        Panel.CRITIC,
        default=[],
        common=True,
    )
    refine: Literal["paths", "steps"] = setting(
        "What the critic keeps for --format sft: paths, whose every step scores --critic-threshold, or steps: of all "
        "right attempts (--recipe chains) those that score best",
        Panel.CRITIC,
        default="paths",
    )
    critic_share: float | None = setting(
        f"Share of the steps that --refine steps keeps, the best ones [default: {CRITIC_SHARE}]",
        Panel.CRITIC,
        gt=0,
        le=1,
    )
    critic_threshold: float | None = setting(
        "Lowest raw score of a step that is kept; with --refine steps instead of a share (0 is ProRAG's rule) "
        "[default: 0]",
        Panel.CRITIC,
    )
    allow_critic: Annotated[bool, Opposite(None)] = setting(
        "Use critics although they failed their evaluation, or were trained on other prompts",
        Panel.CRITIC,
        default=False,
    )


class PairsSettings(
    LimitSettings, BudgetSettings, ModelSettings, LabelSettings, CheckSettings, DecontaminationSettings, DataSetSettings
):
    model: str | None = setting(
        "Judge, for --label judge: a model name at the endpoint, or offline", Panel.MODEL, common=True
    )
    temperature: float = setting("Sampling temperature of the judge", Panel.MODEL, default=0.0, ge=0, le=2)

    @property
    def rules(self) -> PairingRules:
        """Raises InputError for filters beside `as_published`, which has its own."""
        given: dict[str, Any] = {name: getattr(self, name) for name in _RULES.flags}
        limits = {name: given[name] or None for name in ("max_per_state", "max_row_tokens")}  # 0: no limit
        rules = PairingRules(**given | limits)
        if not self.as_published:
            return rules
        changed = [name for name, value in rules.flags.items() if value != _RULES.flags[name]]
        if beside := [flag_of(name) for name in changed if name != "as_published"]:
            raise InputError(f"--as-published has filters of its own: leave out {', '.join(beside)}")
        return AS_PUBLISHED

    @property
    def wants_every_step(self) -> bool:
        """Whether some format is made of the plain steps of trees, which records have on demand."""
        return not (OF_PLAIN_STEPS | CONVERSATIONS).isdisjoint(self.format)

    def options(self, *, refines: bool) -> ExportOptions:
        """refines: whether critics score paths."""
        given = {name: getattr(self, name) for name in ("validation", "flip", "seed", "refine", "hold_out")}
        if refines and self.refine == "steps" and self.critic_threshold is None:
            given["critic_share"] = self.critic_share or CRITIC_SHARE
        elif refines:
            given["critic_threshold"] = self.critic_threshold or 0.0
        return ExportOptions(tuple(dict.fromkeys(("proguide", *self.format))), **given)
