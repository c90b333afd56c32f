"""Scores of an answer against gold answers (EM, cover-EM, token F1, precision and recall): SQuAD normalisation with
FlashRAG's yes/no rule.

`builder_f1` and `prorag_f1` are the F1 of published codes, which normalise less. Each score is the best over all gold
answers. Does not know where the answer came from.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
VERDICTS = ("yes", "no")
"""Answers, normalised, that no string match finds in a text."""
_ONLY_WHOLE = frozenset({*VERDICTS, "noanswer"})


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, English articles and extra white space (SQuAD 1.1)."""
    without_punctuation = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", without_punctuation).split())


def exact_match(answer: str, golden_answers: Iterable[str]) -> float:
    """1.0 if the normalised answer equals a normalised gold answer, else 0.0."""
    normalized = normalize_answer(answer)
    return float(any(normalized == normalize_answer(gold) for gold in golden_answers))


def cover_em(answer: str, golden_answers: Iterable[str]) -> float:
    """1.0 if a normalised gold answer occurs, as whole words, in the normalised answer, else 0.0."""
    padded = f" {normalize_answer(answer)} "
    normalized_golds = (normalize_answer(gold) for gold in golden_answers)
    return float(any(gold and f" {gold} " in padded for gold in normalized_golds))


def f1_score(answer: str, golden_answers: Iterable[str]) -> float:
    """Token F1 in [0, 1]. A yes, no or noanswer on either side scores only if both sides are the same."""
    return max((_pair_f1(answer, gold) for gold in golden_answers), default=0.0)


def token_precision(answer: str, golden_answers: Iterable[str]) -> float:
    """Share of the answer's tokens that a gold answer has, in [0, 1], with the rule of `f1_score` for yes and no.

    As in FlashRAG the best gold answer is that of this score; the best of recall or F1 may be another one.
    """
    return max((_pair_overlap(answer, gold)[0] for gold in golden_answers), default=0.0)


def token_recall(answer: str, golden_answers: Iterable[str]) -> float:
    """Share of a gold answer's tokens that the answer has, in [0, 1]; the best gold answer as in `token_precision`."""
    return max((_pair_overlap(answer, gold)[1] for gold in golden_answers), default=0.0)


def builder_f1(answer: str, golden_answers: Iterable[str]) -> float:
    """Token F1 in [0, 1] as ReasonRAG's published pair builder computes it: as `f1_score`, but articles count."""
    normalized = _with_articles(answer)
    return max((normalized_f1(normalized, _with_articles(gold)) for gold in golden_answers), default=0.0)


def prorag_f1(answer: str, golden_answers: Iterable[str]) -> float:
    """Token F1 in [0, 1] as ProRAG's published search computes it, the best of all gold answers: lower case, split on
    white space, nothing else; punctuation and articles count, and there is no rule for yes and no."""
    tokens = answer.lower().split()
    return max((_token_f1(tokens, gold.lower().split()) for gold in golden_answers), default=0.0)


def _with_articles(text: str) -> str:
    return " ".join(text.lower().translate(_PUNCTUATION).split())


def _pair_f1(answer: str, gold: str) -> float:
    return normalized_f1(normalize_answer(answer), normalize_answer(gold))


def _pair_overlap(answer: str, gold: str) -> tuple[float, float]:
    left, right = normalize_answer(answer), normalize_answer(gold)
    return (0.0, 0.0) if _verdicts_differ(left, right) else _overlap(left.split(), right.split())


def normalized_f1(left: str, right: str) -> float:
    """Token F1 of two texts that are normalised, by whatever rule."""
    return 0.0 if _verdicts_differ(left, right) else _token_f1(left.split(), right.split())


def _verdicts_differ(left: str, right: str) -> bool:
    return left != right and (left in _ONLY_WHOLE or right in _ONLY_WHOLE)


def _token_f1(left: Sequence[str], right: Sequence[str]) -> float:
    precision, recall = _overlap(left, right)
    return 2 * precision * recall / (precision + recall) if precision else 0.0


def _overlap(left: Sequence[str], right: Sequence[str]) -> tuple[float, float]:
    """Precision and recall of the tokens on the left."""
    common = (Counter(left) & Counter(right)).total()
    return (common / len(left), common / len(right)) if common else (0.0, 0.0)
