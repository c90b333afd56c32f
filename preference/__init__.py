"""The rollout record, and how siblings of a finished tree become preference pairs.

Rollout records in, preference pairs out: scoring of answers, candidates, labels, drop reasons, export formats and
their statistics. Knows nothing of language models, retrieval or how a tree came to be.
"""

from preference.exporting import PairSummary, export_pairs
from preference.pairing import Candidate, DropReason, PairingRules, candidates
from preference.records import (
    SCHEMA_VERSION,
    ActionType,
    AgentAction,
    FinalScore,
    MalformedRolloutsError,
    Message,
    ParseFailure,
    PassageRef,
    QuestionError,
    RolloutNode,
    RolloutRecord,
    Usage,
    read_rollouts,
)
from preference.scoring import cover_em, exact_match, f1_score, normalize_answer

__all__ = [
    "SCHEMA_VERSION",
    "ActionType",
    "AgentAction",
    "Candidate",
    "DropReason",
    "FinalScore",
    "MalformedRolloutsError",
    "Message",
    "PairSummary",
    "PairingRules",
    "ParseFailure",
    "PassageRef",
    "QuestionError",
    "RolloutNode",
    "RolloutRecord",
    "Usage",
    "candidates",
    "cover_em",
    "exact_match",
    "export_pairs",
    "f1_score",
    "normalize_answer",
    "read_rollouts",
]
