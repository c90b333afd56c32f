"""`reasonrag generate`: explores many questions and writes them to a run directory as they finish.

From the caller's keyword arguments to a run; `explore` carries it out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reasonrag.concurrency import run_to_end
from reasonrag.exploration.explore import explore
from reasonrag.exploration.from_settings import function_or_name
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.summary import RunSummary
from reasonrag.llm.chat import ChatModel
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.retrieval.from_settings import object_or_name
from reasonrag.retrieval.retriever import Retriever
from reasonrag.settings import resolve


def generate(
    *,
    chat_model: ChatModel | None = None,
    value_chat_model: ChatModel | None = None,
    retriever: Retriever | str | None = None,
    watcher: Watcher | None = None,
    replay: bool | str | Path = False,
    **flags: Any,
) -> RunSummary:
    """Explore questions and write rollouts; the keyword arguments are the command's flags (`data_dir`: `--data-dir`).

    outcome: a name as for --outcome, or a function of a `Question` and the text of an answer that returns the answer's
        quality from 0 to 1 and is recorded under its `__name__`. It is called in the event loop's thread, once per
        distinct answer to a question; gold answers are then not needed.
    chat_model, value_chat_model, retriever: used instead of those the settings would build; a retriever may also be
        named as in --retriever.
    replay: send no requests; answers come from the run's journal, or from the named journal. Works inside a running
        event loop too. Raises InputError before anything is started, and StorageError if writing fails; failed
        questions and what stopped a run early are in the summary. After Ctrl-C it saves the state, then raises
        KeyboardInterrupt.
    """
    retriever, named = object_or_name(retriever)
    function, flags = function_or_name(flags)
    settings = resolve(GenerateSettings, "generate", flags | named)
    return run_to_end(
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
