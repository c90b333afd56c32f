"""What must match between making a data set, training on it and evaluating: above all the renderer of its prompts.

Reads the conditions recorded in a data set and compares them; knows neither trainers nor evaluations. A model that is
prompted in other words, with more passages or with fewer steps than in training is not the model that was trained.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from preference.candidate_records import Origin, QuestionRecord, read_lines
from preference.export.formats import PAIRS_FILE, pairs_files
from preference.export.summary import QUESTIONS
from reasonrag.agent.prompting import Prompts, load_prompts, prompts_beside
from reasonrag.agent.protocols.known import most_searches, renderer_hash, steps_of_a_search, steps_of_hops
from reasonrag.agent.settings import AGENTS, OURS
from reasonrag.data.item_files import explained_records
from reasonrag.errors import InputError, choices
from reasonrag.files import reading
from reasonrag.signatures import public_call
from reasonrag.training.provenance import SHOWN_PLAINLY, TrainingConditions


@public_call()
def check_renderer(data_set: str | Path, prompts: Prompts | None = None) -> TrainingConditions:
    """The conditions under which a data set's steps were sampled, if one renderer made all of it: the one of `prompts`.

    Raises InputError for a mixture of renderers, for a renderer that differs from that of the prompts, and for a
    folder that cannot be read.

    Example:
        >>> reasonrag.check_renderer("data/first").top_k
        (3,)

    Args:
        data_set: a folder written by `pairs`, or just its RAG_ProGuide.json.
        prompts: those that a model will be prompted with; none: skips that comparison.
    """
    data_set = Path(data_set)
    origins, found = _origins(data_set), dict[str, Any]()
    known = _renderers(origins)
    if len(known) > 1:
        agents = {origin.renderer: origin.agent or OURS for origin in origins}
        counts = ", ".join(f"{each} of the agent {agents[each]} ({number:,})" for each, number in known.items())
        raise InputError(
            f"{data_set} mixes prompts of {len(known)} renderers: {counts}. A model can only be prompted with one: "
            "make one data set per renderer from its runs, with reasonrag pairs"
        )
    renderer = next(iter(known), None)
    if renderer and prompts and renderer != (asked := renderer_hash(prompts)):
        raise InputError(
            f"{data_set} has prompts of renderer {renderer}, but the model would be prompted by {asked}: it would see "
            "other words than in training. Give --prompts DIR, the prompts its runs were made with, and use the "
            "version of reasonrag that summary.json names; or generate the data again with reasonrag generate"
        )
    for name in ("top_k", "retriever", "max_steps", *SHOWN_PLAINLY):
        values = {getattr(origin, name) for origin in origins}
        if any(values) or name not in SHOWN_PLAINLY:
            found[name] = (*sorted(values - {None}), *(values & {None}))
    if unknown := sum(number for origin, number in origins.items() if origin.renderer is None):
        things = "questions" if (data_set / QUESTIONS).is_file() else "rows"
        warning = (
            f"{data_set} does not record the renderer of {unknown:,} of its {origins.total():,} {things}: they were "
            "imported, so they cannot be compared. Check one before you train: its system turn must be the model's "
            "prompt"
        )
        found["warnings"] = (warning,)
    return TrainingConditions(renderer=renderer, **found)


def in_turns_of_tools(conditions: TrainingConditions) -> dict[str, Any]:
    """What is other for a model that learns these steps as conversations with a tool: a search takes fewer steps."""
    most = [each and most_searches(each, None) * steps_of_a_search("tools") + 1 for each in conditions.max_steps]
    renderer = renderer_hash(load_prompts(agent="tools"))
    return {"agent": ("tools",), "renderer": renderer, "max_steps": tuple(dict.fromkeys(most))}


def prompts_of_training(data_set: Path, given: Path | None, *, of_tools: bool = False) -> tuple[Prompts, bool]:
    """The prompts that a model trained on a data set will be asked with, and whether a user chose them: those of
    `given`, else those that `import` took out of the rows, else the package's of the agent that made the data.
    of_tools: whether the rows are conversations with a tool."""
    if of_tools:
        return load_prompts(given, agent="tools"), given is not None
    origins = _origins(data_set)
    if given is None and (own := prompts_beside(data_set)):
        prompts, known = load_prompts(own), _renderers(origins)
        if not known or renderer_hash(prompts) in known:  # else the rows were replaced by those of other prompts
            return prompts, True
    agents = {origin.agent or OURS for origin in origins}
    agent = next(iter(agents)) if len(agents) == 1 else OURS
    if agent not in AGENTS:
        raise InputError(
            f"{data_set} is of the agent {agent}, which this version does not know: {choices(agent, AGENTS)}"
        )
    return load_prompts(given, agent=agent), given is not None


def _origins(data_set: Path) -> Counter[Origin]:
    """The origins of a data set's questions, or of its rows if it has only rows."""
    unknown = f"{data_set} has neither {QUESTIONS} nor {PAIRS_FILE}; give a folder that reasonrag pairs wrote"
    file = pairs_files(data_set).get("train", data_set / PAIRS_FILE)
    try:
        with reading(data_set, missing=unknown), explained_records():
            if (data_set / QUESTIONS).is_file():
                questions = read_lines(data_set / QUESTIONS, QuestionRecord)
                return Counter(_with_own_steps(question) for question in questions if not question.error)
            renderers = (row.get("renderer") for row in orjson.loads(file.read_bytes()))
            return Counter(Origin(dataset="", split="", renderer=each) for each in renderers)
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{file} is not a list of rows; give a folder that reasonrag pairs wrote") from error


def _with_own_steps(question: QuestionRecord) -> Origin:
    """The origin, with the steps that this question had."""
    origin, hops = question.origin, question.hops
    if not hops or origin.max_steps is None:
        return origin
    return origin.model_copy(update={"max_steps": steps_of_hops(hops, least=origin.max_steps, agent=origin.agent)})


def _renderers(origins: Counter[Origin]) -> dict[str, int]:
    """Questions per known renderer, most frequent first."""
    known = Counter(origin.renderer for origin in origins.elements() if origin.renderer is not None)
    return dict(known.most_common())
