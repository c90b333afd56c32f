"""The step budget: how many steps an answer may take, and which turn comes next.

Decides that the last step concludes, and whether a query is still searched with. Knows no prompt and no model.
"""

from __future__ import annotations

from preference import ActionType, AgentAction
from reasonrag.agent.protocols.known import PROTOCOLS

MOST_HOPS = 8
"""Beyond them a question gets no further steps, whatever its file says."""


def steps_of_a_search(agent: str | None) -> int:
    """The query, and the reading where that is a turn of its own. agent: by its name; None: ours."""
    return 1 if agent in PROTOCOLS and PROTOCOLS[agent].reads_at_once else 2


def most_searches(max_steps: int, agent: str | None) -> int:
    """Searches of an answer with this many steps, of which the last concludes."""
    return (max_steps - 1) // steps_of_a_search(agent)


def steps_of_hops(hops: int, *, least: int, agent: str | None = None) -> int:
    """Steps of an answer with one search more than hops, for at most `MOST_HOPS`; never fewer than `least`."""
    return max(least, steps_of_a_search(agent) * (min(hops, MOST_HOPS) + 1) + 1)


def next_turn(
    action_type: ActionType | None, *, steps_left: int | None, reads_at_once: bool
) -> tuple[AgentAction, bool]:
    """What the next turn does, and whether it is preceded by a search.

    action_type: of the step before, None at the start. steps_left: the next one among them; None where none concludes.
        The last step must answer; an agent whose passages are read by a turn of their own is not shown any then.
    """
    last = steps_left == 1
    searches = action_type == "query" and (reads_at_once or not last)
    return "conclude" if last else "read" if searches and not reads_at_once else "think", searches
