"""A RAG_ProGuide.json as the published system lays it out: every turn with a system turn of its own, and only the ten
published fields. The words of the system turns are invented."""

from __future__ import annotations

from typing import Any

BEGIN = "You are to begin: think about the question.\n* End with <query>query</query> or <answer>answer</answer>\n"
THINK = "You are to go on from the previous thoughts.\nEnd with <query>query</query> or <answer>answer</answer>.\n    "
READ = "You are to read.\n\n    * Reply with <evidence>evidence</evidence> or <evidence>None</evidence>.\n"
CONCLUDE = "You are to end, with <answer>answer</answer>.\n"
NAMES = {"query": "Query Generation", "evidence": "Evidence Extraction", "answer": "Answer Generation"}
Side = tuple[str, str, str]
"""A reply, its action type and what stands in its tags."""
PLACES = ("Aru", "Bem", "Cor", "Dun", "Eft", "Fal", "Gor", "Hul", "Ibb", "Jor", "Kel", "Lom")


def published_rows() -> list[dict[str, Any]]:
    """Four pairs for each of twelve questions, one in every turn."""
    return [row for place in PLACES for row in _of_question(place)]


def _of_question(place: str) -> list[dict[str, Any]]:
    asked = f"Question: On which river lies the capital of {place}?"
    first = f'The capital is needed. "So the next query is <query>capital of {place}</query>'
    passages = "".join(
        f'Wikipedia Title: "{title}"\n{place}ville is the capital of {place}. It has a "{title}".\n\n'
        for title in (place, f"{place}ville")
    )
    evidence = f"Based on the query, the relevant evidence is <evidence>{place}ville is the capital.</evidence>."
    read = f"{asked}\nPrevious Thoughts: {first}. Reference: <reference>{passages}</reference>"
    later = f"{asked}\nPrevious Thoughts: {first} {evidence}"
    last = f"{later} So the next query is <query>{place}ville</query> <evidence>None</evidence>"
    return [
        _row(BEGIN, asked, 0, ("query", f"capital of {place}"), ("answer", "the Aru")),
        _row(READ, read, 1, ("evidence", f"{place}ville is the capital of {place}."), ("evidence", "None")),
        _row(THINK, later, 2, ("query", f"river of {place}ville"), ("query", f"capital of {place}")),
        _row(CONCLUDE, last, 4, ("answer", f"the {place}"), ("answer", "no river")),
    ]


def _row(system: str, user: str, layer: int, chosen: tuple[str, str], rejected: tuple[str, str]) -> dict[str, Any]:
    sides = [(f"So it is <{kind}>{content}</{kind}>", NAMES[kind], content) for kind, content in (chosen, rejected)]
    return published_row(system, user, layer, *sides)


def published_row(system: str, user: str, layer: int, chosen: Side, rejected: Side) -> dict[str, Any]:
    """The ten published fields of a pair."""
    return {
        "instruction": system,
        "input": user,
        "prompt": f"System: {system}\nUser: {user}",
        "chosen": chosen[0],
        "rejected": rejected[0],
        "chosen_action_type": chosen[1],
        "chosen_content": chosen[2],
        "rejected_action_type": rejected[1],
        "rejected_content": rejected[2],
        "layer": layer,
    }
