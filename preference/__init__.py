"""The rollout record, and how siblings of a finished tree become preference pairs.

Rollout records in, preference pairs out: answer scores, candidates, labels, drop reasons, export formats and their
statistics. Knows nothing of language models, retrieval or how a tree is searched.
"""

from preference.answer_scores import cover_em, exact_match, f1_score, normalize_answer, token_precision, token_recall
from preference.candidate_records import Origin, StateRecord, StepRecord
from preference.export.export_pairs import export_pairs
from preference.export.summary import ExportOptions, PairSummary
from preference.filters import NO_FILTERS, Candidate, DropReason, PairingRules, candidates
from preference.records import (
    ActionType,
    AgentAction,
    FinalScore,
    MalformedRolloutsError,
    Message,
    OutcomeName,
    QuestionError,
    RolloutNode,
    RolloutRecord,
    Usage,
    read_rollouts,
)

__all__ = [
    "NO_FILTERS",
    "ActionType",
    "AgentAction",
    "Candidate",
    "DropReason",
    "ExportOptions",
    "FinalScore",
    "MalformedRolloutsError",
    "Message",
    "Origin",
    "OutcomeName",
    "PairSummary",
    "PairingRules",
    "QuestionError",
    "RolloutNode",
    "RolloutRecord",
    "StateRecord",
    "StepRecord",
    "Usage",
    "candidates",
    "cover_em",
    "exact_match",
    "export_pairs",
    "f1_score",
    "normalize_answer",
    "read_rollouts",
    "token_precision",
    "token_recall",
]
