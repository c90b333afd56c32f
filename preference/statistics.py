"""How far labels can be trusted: agreement between reward rules, and confirmation of pairs by fresh draws or people.

Decides which siblings are compared, what agreement means, and the intervals of shares. Draws nothing itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import NormalDist
from typing import Protocol, TypeVar

from pydantic import BaseModel

from preference.filters import candidates_of
from preference.labelling import TOLERANCE, labelled_states
from preference.records import RolloutNode, RolloutRecord

GOLD = "gold"
"""The rule that orders by gold passages: how many a query finds for the first time, or evidence reports."""
BINS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Edges of the bins of `reliability`; the last edge belongs to the last bin."""


class Share(BaseModel):
    """A share of `of` cases, with its Wilson interval at `LABEL_LEVEL`; all three null if `of` is 0."""

    of: int
    share: float | None = None
    low: float | None = None
    high: float | None = None


class Kappa(BaseModel):
    """Cohen's kappa over `of` cases, with an interval. All but `of` are null without cases, and where chance agreement
    is 1."""

    of: int
    kappa: float | None = None
    """1: full agreement. 0: as often as by chance. Below 0: less often."""
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    """Agreement expected by chance, from each side's own frequencies."""


class RuleAgreement(BaseModel):
    """Agreement of two reward rules: the share of sibling pairs ordered by both that they order alike."""

    one: str
    other: str
    alike: Share


class SignAgreement(BaseModel):
    """How many pairs fresh continuations, or a person, order as the label does."""

    confirmed: Share
    """Over the pairs that are not ties."""
    ties: int
    """Pairs of which neither step is better."""
    right: Share
    """Over all pairs, ties among them: a student trains on all."""
    wrong: int


class Bin(SignAgreement):
    """Pairs with a confidence in [low, high), and how many of them were confirmed."""

    low: float
    high: float
    mean_confidence: float | None


class CheckedPair(Protocol):
    """A pair whose label was checked."""

    @property
    def tied(self) -> bool: ...

    @property
    def confirmed(self) -> bool: ...


class PairWithConfidence(CheckedPair, Protocol):
    """A checked pair with the confidence of its label, if known."""

    @property
    def confidence(self) -> float | None: ...


AnyPair = TypeVar("AnyPair", bound=CheckedPair)


@dataclass(frozen=True, slots=True)
class MarginCheck:
    """A pair checked by fresh continuations: the margin of its label, and that of the fresh means."""

    action_type: str
    layer: int
    confidence: float | None
    margin: float
    fresh_margin: float
    one_draw: bool = False

    @property
    def tied(self) -> bool:
        return abs(self.fresh_margin) <= TOLERANCE

    @property
    def confirmed(self) -> bool:
        return self.fresh_margin > TOLERANCE


def share_of(part: int, whole: int) -> Share:
    """A share and its Wilson interval at `LABEL_LEVEL`."""
    if not whole:
        return Share(of=0)
    low, high = wilson(part / whole, whole)
    return Share(of=whole, share=part / whole, low=low, high=high)


def cohens_kappa(verdicts: Iterable[tuple[Hashable, Hashable]]) -> Kappa:
    """Agreement of two judges beyond chance, from their verdicts in each case.

    The interval is Wilson's for the agreeing share, with chance agreement held fixed. That suits cases where a coin
    decided the sides: chance agreement of two answers is then one half by design, up to a position bias. Unlike the
    large-sample variance or a bootstrap, it does not shrink to a point when all agree. Source: J. Cohen, A coefficient
    of agreement for nominal scales, Educational and Psychological Measurement 20 (1960).
    """
    cases = list(verdicts)
    alike = share_of(sum(one == other for one, other in cases), len(cases))
    ones, others = Counter(one for one, _ in cases), Counter(other for _, other in cases)
    together = sum(ones[each] * others[each] for each in ones)
    if not cases or together == len(cases) ** 2:
        return Kappa(of=len(cases))
    chance = together / len(cases) ** 2

    def beyond(share: float | None) -> float:
        return max(-1.0, ((share or 0.0) - chance) / (1 - chance))

    return Kappa(
        of=len(cases), kappa=beyond(alike.share), low=beyond(alike.low), high=beyond(alike.high), chance=chance
    )


# -- rules against each other ----------------------------------------------------------------------------------


class RuleTally:
    """Counts, over trees, how often each two rules order siblings alike; gold passages count as a rule."""

    def __init__(self) -> None:
        self.siblings: Counter[str] = Counter()
        """Sibling pairs compared, by the action type of the preferred one."""
        self._both: Counter[tuple[str, str, str]] = Counter()
        self._alike: Counter[tuple[str, str, str]] = Counter()
        self._rules: set[str] = set()

    def add(self, rollout: RolloutRecord) -> None:
        """Compare every two siblings that parsed and differ in content, by each rule that values both."""
        for candidate in (pair for state in labelled_states(rollout) for pair in candidates_of(state)):
            if candidate.pair.same or candidate.chosen.parse_error or candidate.rejected.parse_error:
                continue
            signs = _signs(rollout.nodes[candidate.chosen.id], rollout.nodes[candidate.rejected.id])
            action_type = str(candidate.chosen.action_type)
            self.siblings[action_type] += 1
            self._rules |= signs.keys()
            for one, other in combinations(sorted(signs, key=_rule_order), 2):
                if signs[one] and signs[other]:
                    self._both[action_type, one, other] += 1
                    self._alike[action_type, one, other] += signs[one] == signs[other]

    def agreement(self, action_type: str | None = None) -> list[RuleAgreement]:
        """Agreement of every two rules, by name with gold passages last; over all siblings, or those of one action
        type."""
        types = list(self.siblings) if action_type is None else [action_type]
        return [
            RuleAgreement(
                one=one,
                other=other,
                alike=share_of(
                    sum(self._alike[each, one, other] for each in types),
                    sum(self._both[each, one, other] for each in types),
                ),
            )
            for one, other in combinations(sorted(self._rules, key=_rule_order), 2)
        ]


def _signs(step: RolloutNode, other: RolloutNode) -> dict[str, int]:
    """1, 0 or -1 by rule: the first step is better, equal or worse. Gold passages compare only steps of one type."""
    worth = {name: (step.rewards[name], other.rewards[name]) for name in step.rewards if name in other.rewards}
    known = {name: (here, there) for name, (here, there) in worth.items() if here is not None and there is not None}
    if step.gold is not None and other.gold is not None and step.action_type == other.action_type:
        known[GOLD] = (step.gold, other.gold)
    return {name: _sign(here - there) for name, (here, there) in known.items()}


def _rule_order(rule: str) -> tuple[bool, str]:
    return rule == GOLD, rule


def _sign(difference: float) -> int:
    return 0 if abs(difference) <= TOLERANCE else 1 if difference > 0 else -1


# -- labels against fresh continuations ------------------------------------------------------------------------


def sign_agreement(pairs: Iterable[CheckedPair]) -> SignAgreement:
    """How many labels are confirmed, with ties and without."""
    pairs = list(pairs)
    ties, right = sum(each.tied for each in pairs), sum(each.confirmed for each in pairs)
    wrong = len(pairs) - ties - right
    confirmed, of_all = share_of(right, right + wrong), share_of(right, len(pairs))
    return SignAgreement(confirmed=confirmed, ties=ties, right=of_all, wrong=wrong)


def sign_agreement_by(pairs: Iterable[AnyPair], group: Callable[[AnyPair], str]) -> dict[str, SignAgreement]:
    """Sign agreement by group, sorted by name."""
    groups: dict[str, list[AnyPair]] = {}
    for each in pairs:
        groups.setdefault(group(each), []).append(each)
    return {name: sign_agreement(groups[name]) for name in sorted(groups)}


def reliability(pairs: Sequence[PairWithConfidence]) -> list[Bin]:
    """Claimed confidence against the confirmed share, bin by bin. Values below the first edge count in the first bin;
    pairs without a confidence are in none."""
    found = []
    for low, high in pairwise(BINS):
        claims = [(each.confidence, each) for each in pairs]
        inside = [(claim, each) for claim, each in claims if claim is not None and _bin_of(claim) == low]
        mean = sum(claim for claim, _ in inside) / len(inside) if inside else None
        agreed = dict(sign_agreement(each for _, each in inside))
        found.append(Bin(low=low, high=high, mean_confidence=mean, **agreed))
    return found


def _bin_of(confidence: float) -> float:
    """Lower edge of a confidence's bin."""
    return max((edge for edge in BINS[:-1] if edge <= confidence), default=BINS[0])


LABEL_LEVEL = 0.9
"""Level of every interval that says how far labels or rows can be trusted: shares, kappas, biases."""
COMPARISON_LEVEL = 0.95
"""Level of every interval by which systems are measured and compared, evaluations and trials; a setting where a command
has `--confidence`."""
Z = NormalDist().inv_cdf((1 + LABEL_LEVEL) / 2)
"""Standard normal quantile of an interval at `LABEL_LEVEL`."""


def wilson(share: float, cases: float) -> tuple[float, float]:
    """The Wilson interval, at `LABEL_LEVEL`, of a share of `cases` (> 0) independent cases; within [0, 1].

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).
    """
    shrink = 1 + Z * Z / cases
    middle = (share + Z * Z / (2 * cases)) / shrink
    reach = Z * math.sqrt(share * (1 - share) / cases + Z * Z / (4 * cases * cases)) / shrink
    return max(0.0, middle - reach), min(1.0, middle + reach)


def effective_sample_size(cases: int, squares: float) -> float | None:
    """Effective sample size: a lower bound that treats each cluster as fully correlated; None without cases.

    squares: sum of the squares of the clusters' sizes. Source: L. Kish, Survey Sampling (1965), chapter 8.
    """
    return cases**2 / squares if cases else None
