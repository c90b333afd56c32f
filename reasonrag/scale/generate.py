"""`reasonrag generate`: explores many questions and writes them to a run directory as they finish.

From the caller's keyword arguments to a run. Decides who carries it out: `explore` in this process, as a whole or as
one rank, or ranks on a Ray cluster.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from preference import OutcomeName
from reasonrag.agent.outcomes import OutcomeFunction
from reasonrag.concurrency import run_to_end
from reasonrag.errors import InputError
from reasonrag.exploration.explore import explore
from reasonrag.exploration.from_settings import function_or_name
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.summary import OUTCOME_FAILED, RunSummary
from reasonrag.llm.chat import ChatModel
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.retrieval.from_settings import object_or_name
from reasonrag.retrieval.retriever import Retriever
from reasonrag.settings import resolve
from reasonrag.signatures import public_call


@public_call(GenerateSettings)
def generate(
    *,
    chat_model: ChatModel | None = None,
    value_chat_model: ChatModel | None = None,
    retriever: Retriever | str | None = None,
    watcher: Watcher | None = None,
    replay: bool | str | Path = False,
    outcome: OutcomeName | OutcomeFunction | None = None,
    **flags: Any,
) -> RunSummary:
    """Explore questions with a teacher, and write step-level rollouts to a run directory.

    The same call continues an interrupted run. Works inside a running event loop too. Failed questions, with their
    causes, and what stopped a run early are in the summary. Raises InputError before anything is started, and
    StorageError if writing fails; after Ctrl-C it saves the state, then raises KeyboardInterrupt.

    Example:
        >>> run = reasonrag.generate(dataset="atlas", limit=10, run="runs/first")
        >>> run.done, run.failed
        (10, 0)

    Args:
        chat_model: used instead of the model that the settings would open: any object with `name`, and coroutines
            `complete(request)`, `check()` and `close()` (`reasonrag.llm.chat.ChatModel`).
        value_chat_model: likewise for the value model, which continues the teacher's steps.
        retriever: used instead of the one that the settings would build, or its name, as `retriever` in
            reasonrag.toml.
        watcher: is told what happens while it goes on; none: silent.
        replay: send no requests; answers come from the run's journal, or from the journal at this path.
        outcome: a name, or a function of a `Question` and the text of an answer that returns the answer's quality
            from 0 to 1 and is recorded under its `__name__`. It is called in the event loop's thread, once per
            distinct answer to a question; gold answers are then not needed. A question for which it fails has no
            tree: it is counted in `failed`, `warnings` says why, and Python warns.
    """
    retriever, named = object_or_name(retriever)
    function, valued = function_or_name(outcome)
    settings = resolve(GenerateSettings, "generate", flags | named | valued)
    for name in ("workers", "address"):
        if settings.on == "here" and flags.get(name) is not None:
            raise InputError(f"--{name} goes with --on ray")
    if settings.on == "ray":
        objects = (chat_model, value_chat_model, retriever, function, replay or None)
        if any(each is not None for each in objects):
            raise InputError(
                "on='ray': models, retrievers and functions of this process cannot be given to ranks, nor a replay; "
                "name them by settings, or leave out on"
            )
        from reasonrag.scale.ray_ranks import explore_on_ray

        return run_to_end(explore_on_ray(settings, watcher or SilentWatcher()))
    summary = run_to_end(
        explore(
            settings,
            chat_model,
            retriever,
            watcher or SilentWatcher(),
            value_chat_model=value_chat_model,
            replay=replay,
            function=function,
        )
    )
    for each in summary.warnings:
        if each.startswith(OUTCOME_FAILED):
            warnings.warn(each, stacklevel=3)  # of whoever called the public call
    return summary
