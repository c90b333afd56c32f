"""What the attempts of a round say of the model that drew them: the row of a round on the page of `rounds`.

Decides what each measure is. Does not know what a round does with them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel

from preference.records import RolloutNode, read_rollouts
from preference.statistics import COMPARISON_LEVEL, Share, share_of
from reasonrag.errors import InputError
from reasonrag.exploration.summary import RunSummary
from reasonrag.files import ROLLOUTS
from reasonrag.rendering import dollars, percent

HEAD: Final = "round outcome unreadable loops searches tokens entropy distance spent".split()
_WORDS, _TIMES = 4, 4


class Round(BaseModel):
    """The attempts of one round, before it learned from them.

    outcome: mean, 0 to 1. em: likewise, of questions with gold answers, with an interval as if all attempts at a
    question were one. unreadable, loops: shares of replies, as often as each was drawn. searches: per attempt.
    tokens: per completion, those of a reader included. entropy: mean of -log p of the replies' tokens, in nats;
    distance: mean of log p - log p of the model of round 1, an estimate of the KL divergence per token; None where the
    training does not compute them. seconds: of the round, since it was last started. failed: questions without a tree.
    stopped: why rounds end here.
    """

    round: int
    model: str
    outcome: float | None
    em: Share = Share(of=0)
    unreadable: float
    loops: float
    searches: float
    tokens: float
    failed: int
    cost: float | None
    entropy: float | None = None
    distance: float | None = None
    seconds: float = 0.0
    stopped: str | None = None

    @classmethod
    def measured(cls, number: int, model: str, run: Path, summary: RunSummary) -> Self:
        """Of the run of a round, which has ended. Raises InputError where nothing was drawn."""
        if not summary.done:
            raise InputError(f"round {number}: no question of {run} has attempts; its failures.jsonl says why")
        nodes, lost = list[RolloutNode](), 0
        for tree in read_rollouts(run / ROLLOUTS):
            nodes += tree.nodes[1:]
            lost += len(tree.failed_continuations)
        done = summary.done
        replies = max(1, lost + sum(node.draws for node in nodes))
        return cls(
            round=number,
            model=model,
            outcome=summary.mean_outcome,
            em=share_of((summary.mean_em or 0) * done, done if summary.mean_em is not None else 0, COMPARISON_LEVEL),
            unreadable=(lost + sum(node.draws for node in nodes if node.parse_error)) / replies,
            loops=sum(node.draws for node in nodes if repeats_itself(node.response or "")) / replies,
            searches=sum(node.draws for node in nodes if node.action_type == "query") / max(1, summary.continuations),
            tokens=summary.completion_tokens / max(1, summary.calls),
            failed=summary.failed,
            cost=summary.cost_usd,
        )

    def row(self) -> list[object]:
        """By the columns of HEAD."""
        shares = [percent(each, 1) for each in (self.unreadable, self.loops)]
        of_tokens = [self.searches, self.tokens, self.entropy, self.distance]
        spent = dollars(self.cost) if self.cost else f"{self.seconds:,.0f} s"
        return [self.round, self.outcome, *shares, *of_tokens, spent]


def repeats_itself(reply: str) -> bool:
    """Whether some four words stand in it at least four times: a model that is trained too far falls into loops."""
    words = reply.split()
    seen = Counter(tuple(words[at : at + _WORDS]) for at in range(len(words) - _WORDS + 1))
    return max(seen.values(), default=0) >= _TIMES
