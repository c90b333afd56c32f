"""Which pairs of a state the published systems train on: `pairs --as-published`.

Decides by the recipe that made a tree whose rules hold, and which of its pairs they keep. Knows neither trees nor
files. Sources, from the published code: ReasonRAG's pair builder; RAG-Gym's DPO data; ProRAG's filter of siblings.
Departure: RAG-Gym's own code would pair two equal replies that were ranked apart, and choose one that did not parse.
"""

from __future__ import annotations

from typing import Final, Literal

from preference.candidate_records import StateRecord, StepRecord
from preference.records import ActionType

PublishedSystem = Literal["reasonrag", "prorag", "ragym"]
SYSTEM_OF_RECIPE: Final[dict[str, PublishedSystem]] = {
    "released": "reasonrag",
    "reasonrag": "reasonrag",
    "continuation": "reasonrag",
    "prorag": "prorag",
    "ragym": "ragym",
}
"""Recipe -> the system whose labels and filters it goes with. `economy` is ours and has none."""

LEAST_DIFFERENCE: Final = 0.01
"""ReasonRAG: smallest difference of two rewards."""
FEWEST_VISITS_OF_STEP: Final = 1
"""ProRAG: of a step that the judge is shown."""
FEWEST_VISITS_OF_STATE: Final = 3
"""ProRAG: of the step that leads to a state that is judged; the root is always judged."""
GOOD_TRAJECTORY: Final = 0.75
"""RAG-Gym: F1 that the answer of a trajectory must exceed."""
CHOSEN_ABOVE, REJECTED_BELOW = 0.75, 0.5
"""RAG-Gym: rewards of chosen and rejected steps; as 1 / (1 + rank), the first against the third and later ones."""

TAGS: tuple[ActionType, ...] = ("query", "evidence", "answer")
_CONTENTS: tuple[ActionType, ...] = ("answer", "query", "evidence")


def builder_reading(response: str) -> tuple[ActionType | None, str]:
    """Action type and content of a reply as ReasonRAG's builder reads them: the type is the first of query, evidence,
    answer whose tag is opened anywhere, the content that of the first whole tag of answer, query, evidence. None and
    nothing without a tag."""
    types = (tag for tag in TAGS if f"<{tag}>" in response)
    contents = (found for tag in _CONTENTS if (found := inside(response, tag)) is not None)
    return next(types, None), next(contents, "")


def inside(response: str, tag: ActionType) -> str | None:
    """The content of the first whole tag, in one pass: a regular expression would try every tag that never closes."""
    _, _, after = response.partition(f"<{tag}>")
    content, closed, _ = after.partition(f"</{tag}>")
    return content.strip() if closed else None


BuilderReason = Literal["unvalued", "not_reached", "malformed", "same_content", "small_margin"]


def dropped_by_builder(state: StateRecord, chosen: StepRecord, rejected: StepRecord) -> BuilderReason | None:
    """Why ReasonRAG's builder makes no row of two siblings; None if it makes one.

    chosen: the one with the higher reward, both with type and content by `builder_reading`.
    """
    if chosen.reward is None or rejected.reward is None:
        return "unvalued"
    if state.not_reached:
        return "not_reached"
    if chosen.action_type is None:
        return "malformed"
    if chosen.content == rejected.content:
        return "same_content"
    return "small_margin" if abs(chosen.reward - rejected.reward) < LEAST_DIFFERENCE else None


def dropped_by_rank(
    state: StateRecord, chosen: StepRecord, rejected: StepRecord
) -> Literal["wrong_trajectory", "not_ranked_apart"] | None:
    """Why RAG-Gym makes no pair of two ranked siblings; None if it makes one."""
    if (state.trajectory_f1 or 0.0) <= GOOD_TRAJECTORY:
        return "wrong_trajectory"
    apart = (chosen.reward or 0.0) > CHOSEN_ABOVE and (rejected.reward or 0.0) < REJECTED_BELOW
    return None if apart else "not_ranked_apart"


def is_ranked(state: StateRecord) -> bool:
    """Whether the rewards of a state are ranks: the thresholds above are then what they mean."""
    return state.origin.reward == "rank"


def is_judged_by_visits(state: StateRecord) -> bool:
    """Whether a judge of this state is shown visits and values, and only what was visited often enough (ProRAG)."""
    return SYSTEM_OF_RECIPE.get(state.origin.recipe or "") == "prorag"


def visited_enough(state: StateRecord, *steps: StepRecord) -> bool:
    """Whether ProRAG shows a judge these steps of a state."""
    enough = state.layer == 0 or state.visits >= FEWEST_VISITS_OF_STATE
    return enough and all(step.visits >= FEWEST_VISITS_OF_STEP for step in steps)
