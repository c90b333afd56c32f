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
    "compare",
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
    from reasonrag.auditing import audit
    from reasonrag.calibration import calibrate
    from reasonrag.estimation import estimate
    from reasonrag.evaluation.comparing import compare
    from reasonrag.evaluation.evaluating import evaluate
    from reasonrag.evaluation.questioning import ask
    from reasonrag.generation import generate
    from reasonrag.importing import import_published
    from reasonrag.indexing import index_build, index_check, index_info, index_serve
    from reasonrag.pairing import pairs
    from reasonrag.publishing import publish
    from reasonrag.reviewing import review_report
    from reasonrag.training.checkup import doctor
    from reasonrag.training.running import train
    from reasonrag.tuning import tune
    from reasonrag.viewing.looking import view
    from reasonrag.viewing.showing import show, stats


_CALLS = {
    "ask": "evaluation.questioning",
    "audit": "auditing",
    "calibrate": "calibration",
    "compare": "evaluation.comparing",
    "doctor": "training.checkup",
    "estimate": "estimation",
    "evaluate": "evaluation.evaluating",
    "generate": "generation",
    "import_published": "importing",
    "index_build": "indexing",
    "index_check": "indexing",
    "index_info": "indexing",
    "index_serve": "indexing",
    "pairs": "pairing",
    "publish": "publishing",
    "review_report": "reviewing",
    "show": "viewing.showing",
    "stats": "viewing.showing",
    "train": "training.running",
    "tune": "tuning",
    "view": "viewing.looking",
}
"""Where each call is, which is loaded when it is asked for."""


def __getattr__(name: str) -> Any:
    if name in _CALLS:
        return getattr(import_module(f"reasonrag.{_CALLS[name]}"), name)
    raise AttributeError(f"module 'reasonrag' has no attribute {name!r}")
