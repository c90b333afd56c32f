"""The rollout record, and how siblings of a finished tree become preference pairs.

Rollout records in, preference pairs out: answer scores, candidates, labels, drop reasons, export formats and their
statistics. Knows nothing of language models, retrieval or how a tree is searched.
"""

from preference.answer_scores import (
    cover_em,
    exact_match,
    f1_score,
    normalize_answer,
    token_precision,
    token_recall,
)
from preference.candidates import (
    GoldVerdict,
    LabelName,
    MalformedCandidatesError,
    Origin,
    PairRecord,
    QuestionRecord,
    StateRecord,
    StepRecord,
)
from preference.confidence import confidence
from preference.export.export_pairs import export_pairs
from preference.export.summary import ExportFacts, ExportOptions, GoldAgreement, PairSummary
from preference.filters import NO_FILTERS, Candidate, DropReason, PairingRules, candidates
from preference.records import (
    SCHEMA_VERSION,
    ActionType,
    AgentAction,
    FinalScore,
    MalformedRolloutsError,
    Message,
    OutcomeName,
    ParseFailure,
    PassageRef,
    QuestionError,
    RolloutNode,
    RolloutRecord,
    Usage,
    read_rollouts,
)
from preference.similarity import NEARLY_THE_SAME, equivalent_steps, similarity

__all__ = [
    "NEARLY_THE_SAME",
    "NO_FILTERS",
    "SCHEMA_VERSION",
    "ActionType",
    "AgentAction",
    "Candidate",
    "DropReason",
    "ExportFacts",
    "ExportOptions",
    "FinalScore",
    "GoldAgreement",
    "GoldVerdict",
    "LabelName",
    "MalformedCandidatesError",
    "MalformedRolloutsError",
    "Message",
    "Origin",
    "OutcomeName",
    "PairRecord",
    "PairSummary",
    "PairingRules",
    "ParseFailure",
    "PassageRef",
    "QuestionError",
    "QuestionRecord",
    "RolloutNode",
    "RolloutRecord",
    "StateRecord",
    "StepRecord",
    "Usage",
    "candidates",
    "confidence",
    "cover_em",
    "equivalent_steps",
    "exact_match",
    "export_pairs",
    "f1_score",
    "normalize_answer",
    "read_rollouts",
    "similarity",
    "token_precision",
    "token_recall",
]
