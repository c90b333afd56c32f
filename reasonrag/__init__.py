"""From questions and a corpus to step-level preference data for agentic RAG.

The two calls of the main job have the names of the commands:

    reasonrag.generate(dataset="atlas", model="offline", limit=20, run="runs/first")
    reasonrag.pairs("runs/first", out="data/first")

Importing this package loads nothing heavy and fetches nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "ask",
    "audit",
    "calibrate",
    "check_renderer",
    "compare",
    "corpus_build",
    "doctor",
    "estimate",
    "evaluate",
    "generate",
    "import_published",
    "index_build",
    "index_check",
    "index_info",
    "index_serve",
    "pairs",
    "publish",
    "review_report",
    "show",
    "stats",
    "train",
    "tune",
    "view",
]

if TYPE_CHECKING:
    from reasonrag.curation.audit.audit import audit
    from reasonrag.curation.import_published import import_published
    from reasonrag.curation.pairs import pairs
    from reasonrag.curation.review import review_report
    from reasonrag.data.documents.build import corpus_build
    from reasonrag.evaluation.ask import ask
    from reasonrag.evaluation.compare import compare
    from reasonrag.evaluation.evaluate import evaluate
    from reasonrag.exploration.cost_estimate import estimate
    from reasonrag.exploration.generate import generate
    from reasonrag.publishing.publish import publish
    from reasonrag.retrieval.index import index_build, index_check, index_info, index_serve
    from reasonrag.studies.calibrate import calibrate
    from reasonrag.studies.tune import tune
    from reasonrag.training.doctor.doctor import doctor
    from reasonrag.training.prompt_parity import check_renderer
    from reasonrag.training.train import train
    from reasonrag.viewing.view import show, stats, view


_CALLS = {
    "ask": "evaluation.ask",
    "audit": "curation.audit.audit",
    "calibrate": "studies.calibrate",
    "check_renderer": "training.prompt_parity",
    "compare": "evaluation.compare",
    "corpus_build": "data.documents.build",
    "doctor": "training.doctor.doctor",
    "estimate": "exploration.cost_estimate",
    "evaluate": "evaluation.evaluate",
    "generate": "exploration.generate",
    "import_published": "curation.import_published",
    "index_build": "retrieval.index",
    "index_check": "retrieval.index",
    "index_info": "retrieval.index",
    "index_serve": "retrieval.index",
    "pairs": "curation.pairs",
    "publish": "publishing.publish",
    "review_report": "curation.review",
    "show": "viewing.view",
    "stats": "viewing.view",
    "train": "training.train",
    "tune": "studies.tune",
    "view": "viewing.view",
}
"""The module of each public call, imported on first use."""


def __getattr__(name: str) -> Any:
    if name in _CALLS:
        return getattr(import_module(f"reasonrag.{_CALLS[name]}"), name)
    raise AttributeError(f"module 'reasonrag' has no attribute {name!r}")
