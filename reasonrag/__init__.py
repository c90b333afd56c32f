"""From questions and a corpus to step-level preference data for agentic RAG.

The two calls of the main job have the names of the commands:

    reasonrag.generate(dataset="atlas", model="offline", limit=20, run="runs/first")
    reasonrag.pairs("runs/first", out="data/first")

`help(reasonrag.generate)` lists every setting. Importing this package loads nothing heavy and fetches nothing; editors
and type checkers read `__init__.pyi`, which the build makes of the settings (hatch_build.py).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_CALLS = {
    "Environment": "agent.environment",
    "ask": "evaluation.ask",
    "audit": "curation.audit.audit",
    "calibrate": "studies.calibrate",
    "check_renderer": "training.prompt_parity",
    "compare": "evaluation.compare",
    "corpus_build": "data.documents.build",
    "corpus_questions": "curation.question_writing.writing",
    "doctor": "training.doctor.doctor",
    "estimate": "exploration.cost_estimate",
    "evaluate": "evaluation.evaluate",
    "evaluate_critic": "critics.evaluation.evaluate",
    "generate": "exploration.explore",
    "import_published": "curation.import_published",
    "index_build": "retrieval.index",
    "index_check": "retrieval.index",
    "index_serve": "retrieval.index",
    "load_pairs": "viewing.load",
    "load_rollouts": "viewing.load",
    "merge": "scale.merge",
    "pairs": "curation.pairs",
    "publish": "publishing.publish",
    "review_report": "curation.review",
    "review_sample": "curation.review",
    "rounds": "training.policy.rounds",
    "search": "retrieval.index",
    "show": "viewing.view",
    "stats": "viewing.view",
    "train": "training.train",
    "train_critic": "critics.train",
    "train_policy": "training.policy.train",
    "tune": "studies.tune",
    "view": "viewing.view",
    "warm_up": "curation.warm_up.warm_up",
}
"""The module of each public call, imported on first use."""
__all__ = ["__version__", *_CALLS]  # noqa: PLE0604 - texts, too


def __getattr__(name: str) -> Any:
    if name in _CALLS:
        return getattr(import_module(f"reasonrag.{_CALLS[name]}"), name)
    raise AttributeError(f"module 'reasonrag' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
