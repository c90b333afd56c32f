"""The settings of an agent: a record that commands are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from reasonrag.data.questions import SHORT, AnswerStyle
from reasonrag.settings import Panel, Seed, Settings, Words, setting

AgentName = Literal["reasonrag", "react", "search-o1", "re2search", "prorag", "tools"]
AGENTS: tuple[AgentName, ...] = get_args(AgentName)
OURS: AgentName = "reasonrag"


class AgentSettings(Settings):
    """What an agent is told, and how long its answers may be."""

    agent: AgentName = setting(
        f"Agent that answers: {', '.join(AGENTS)}; a trained model's folder names its own", Panel.MODEL, default=OURS
    )
    reader_model: str | None = setting(
        "Model that answers each query of --agent search-o1 or re2search from its passages, at temperature 0; offline: "
        "the extractive teacher [default: --model]",
        Panel.MODEL,
    )
    reader_base_url: Words = setting(
        "Endpoint of the reader; its key is read from REASONRAG_READER_API_KEY [default: --base-url]",
        Panel.MODEL,
        default=[],
    )
    prompts: Path | None = setting(
        "Folder with your own prompts, any of begin.txt think.txt read.txt conclude.txt short.txt long.txt repair.txt "
        "vary.txt reader.txt judge.txt rank.txt answer.txt rubric.txt support.txt; or DATA/prompts of imported data",
        Panel.MODEL,
    )
    style: AnswerStyle = setting(
        "Length of answers: short (a name, a date, yes or no) or long (sentences, which a judge "
        "scores). A question's metadata.style takes precedence",
        Panel.MODEL,
        default=SHORT,
    )
    max_steps: int | None = setting(
        "Maximum steps per answer; at the last one the agent must answer [default: 7]", Panel.MODEL, ge=1
    )
    seed: Seed = setting("Seed of the run", Panel.EXECUTION, default=0)
