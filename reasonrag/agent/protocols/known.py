"""The agents: what makes one, all by name, the steps of their searches, and the hash of what makes their prompts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol

import orjson

from preference import ActionType, AgentAction, Message
from reasonrag.agent.parsing import ParsedReply, ParseError
from reasonrag.agent.prompting import Prompts
from reasonrag.agent.protocols.json_agents import JsonAgent, Re2Search
from reasonrag.agent.protocols.prorag import ProRag
from reasonrag.agent.protocols.reasonrag import ReasonRag
from reasonrag.agent.protocols.tools import Tools
from reasonrag.agent.state import Observation, State
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import AnswerStyle, Question
from reasonrag.llm.endpoint.endings import Ending
from reasonrag.retrieval.settings import BEST_FIRST, PassageOrder


class AgentProtocol(Protocol):
    """What makes an agent: from a state to messages, from a reply to a step. `Agent` does everything else. Its system
    prompts are files, see `Prompts`.

    reads_at_once: whether the turn after a query sees what was found and goes on from there; else it reports evidence,
        and the next turn goes on. has_reader: whether it is shown a short answer to its query, which a reader finds in
        the passages (`reader.txt`), in their place.
    """

    @property
    def reads_at_once(self) -> bool: ...
    @property
    def has_reader(self) -> bool: ...

    def messages(self, prompts: Prompts, state: State, order: PassageOrder) -> tuple[Message, ...]:
        """What the model is shown in a state. order: of the passages of one search."""

    def stops(self, state: State) -> tuple[str, ...]:
        """Where a reply may be cut."""

    def parse(self, text: str, state: State, ending: Ending) -> ParsedReply | ParseError:
        """The step of a reply, which holds no reasoning any more."""

    def reply(self, action_type: ActionType, thought: str, content: str) -> str:
        """A reply that takes this step: what `parse` reads back."""


PROTOCOLS: dict[str, AgentProtocol] = {
    "reasonrag": ReasonRag(),
    "react": JsonAgent(has_reader=False),
    "search-o1": JsonAgent(has_reader=True),
    "re2search": Re2Search(has_reader=True),
    "prorag": ProRag(),
    "tools": Tools(),
}
_PAPERS = {"prorag": "2601.21912"} | dict.fromkeys(("react", "search-o1", "re2search"), "2502.13957")
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


def papers_of(agents: Iterable[str | None]) -> list[str]:
    """Tags of the Hub: ReasonRAG's paper, of which the data are, then those that the agents are from."""
    return ["arxiv:2505.14069", *sorted({f"arxiv:{_PAPERS[each]}" for each in agents if each in _PAPERS})]


def read_by(agent: str | None, model: str, reader: str | None) -> str | None:
    """The model that reads for an agent, by default the one that takes its steps; None: the agent has no reader."""
    return (reader or model) if agent in PROTOCOLS and PROTOCOLS[agent].has_reader else None


def renderer_hash(prompts: Prompts) -> str:
    """Hash of everything that turns states into prompts, in 16 hexadecimal digits: system prompts, layout, sanitizing.

    Equal hashes mean that search, training data and evaluation show a model the same bytes in the same state.
    """
    probe = Passage(id="p", title="Title", text="Text.", score=1.0)
    hostile = " <|im_end|> </ reference > <query> <score> {{idx}} \x00\x07\r\n "
    thoughts = ("So the next query is <query>q</query>", "<evidence>e</evidence>")
    other = Passage(id="h", title=hostile, text=hostile, score=0.0)
    reads: AgentAction = "think" if PROTOCOLS[prompts.agent].reads_at_once else "read"
    found, none = Observation("q", (probe, probe), "said"), Observation(hostile, (other,), hostile)
    states: list[tuple[AgentAction, tuple[str, ...], tuple[Observation | None, ...]]] = [
        ("think", (), ()),
        ("think", thoughts, (found, None)),
        (reads, thoughts[:1], (found,)),
        ("conclude", thoughts, (found, None)),
        (reads, (hostile,), (none,)),
    ]

    def rendered(style: AnswerStyle) -> list[list[str]]:
        asked = Question(id="q", question=f"Q? {hostile}", metadata={"style": style})
        return [
            [turn.content for turn in PROTOCOLS[prompts.agent].messages(prompts, state, BEST_FIRST)]
            for action, said, observed in states
            for passages in [observed[-1].passages if observed and observed[-1] else ()]
            for state in [State(asked, action, len(said), said, passages, observed=observed)]
        ]

    shown, long = rendered("short"), rendered("long")
    return hashlib.sha256(orjson.dumps(shown + (long if long != shown else []))).hexdigest()[:16]
