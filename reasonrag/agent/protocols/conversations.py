"""Trees as conversations with a search tool: rows that today's trainers render by a model's own chat template.

Decides the turns of states that tag prompts made: a query is a call, its passages are what the tool found, and evidence
opens the turn after them. Those of the agent `tools` stay as they are. Knows neither files nor labels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from preference import ActionType, AgentAction, Message
from preference.best_path import steps_to
from preference.candidate_records import Origin, PathStep, PlainStep, QuestionRecord, StateRecord
from preference.export.formats import ACTION_TYPE_NAMES, CONVERSATIONS, FormatName, Row
from reasonrag.agent.imported_prompts import shown_in
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.protocols.reasonrag import LEADS
from reasonrag.agent.protocols.tools import Tools, without_tool_tags
from reasonrag.agent.state import Observation, State
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.llm.hermes import SEARCH, SIGNATURE, TOOL, call_text, native_turns, sharegpt_turns
from reasonrag.retrieval.settings import BEST_FIRST

TOOLS = json.dumps([TOOL])
"""As text: TRL and LLaMA-Factory read it so, and a column has one type."""
_END_OF_STEP = re.compile(r"</(query|evidence)>")
_ACTION_TYPES = {name: kind for kind, name in ACTION_TYPE_NAMES.items()}
Searches = Mapping[tuple[str | None, str], Sequence[Passage]]
"""What a question's searches found, by the run's configuration and the query."""


class Before(NamedTuple):
    """What stands before a step: turns, and the evidence that its own turn begins with. None: the step is its turn."""

    turns: tuple[Message, ...]
    evidence: str | None = None


class Conversations:
    """Makes rows, question by question. left_out: pairs, paths and attempts without one: the passages of an earlier
    search are in none of their question's states, or its thoughts cannot be told apart."""

    def __init__(self, formats: Collection[FormatName]) -> None:
        self.left_out = 0
        self._formats = CONVERSATIONS & {*formats}
        self._prompts = load_prompts(agent="tools")

    def of_pairs(
        self, asked: Iterable[QuestionRecord], kept: Iterable[tuple[StateRecord, Row]]
    ) -> Iterator[tuple[FormatName, Row]]:
        if self._formats.isdisjoint({"tools", "tools-sharegpt"}):
            return
        kept = [*kept]
        seen = [(each.origin, step.prompt) for each in asked for step in (*each.plain_steps, *(each.path or ()))]
        searches = _searches([*seen, *((state.origin, state.prompt) for state, _ in kept)])
        for state, row in kept:
            before = self._before(state.prompt, state.origin, searches, state.action)
            if before is None:
                continue
            sides = {
                side: [_turn(before, row[side], _ACTION_TYPES[row[f"{side}_action_type"]], row[f"{side}_content"])]
                for side in ("chosen", "rejected")
            }
            named = {"tools": TOOLS, "pair_id": row["pair_id"]}
            native = {"prompt": before.turns} | sides
            yield "tools", {name: native_turns(turns) for name, turns in native.items()} | named
            [chosen, rejected] = (sharegpt_turns(turns)[0] for turns in sides.values())
            yield "tools-sharegpt", _sharegpt(before.turns) | {"chosen": chosen, "rejected": rejected} | named

    def of_question(self, question: QuestionRecord) -> Iterator[tuple[FormatName, Row]]:
        """Of its path, and of its best and its worst attempt."""
        named = {"tools": TOOLS, "question_id": question.question_id, "question": question.question}
        wanted = not self._formats.isdisjoint({"messages", "messages-sharegpt"})
        if wanted and question.path and (turns := self._whole(question.path, question.origin)):
            yield "messages", {"messages": native_turns(turns)} | named
            yield "messages-sharegpt", _sharegpt(turns) | named
        ends = [each for each in question.plain_steps if each.outcome is not None]
        if "prompts" in self._formats:
            yield "prompts", self._prompt(question, ends) | {"tools": TOOLS}
        if "attempts" not in self._formats:
            return
        # the better attempt is right in fewer steps, the worse one wrong in more
        best, worst = (
            of(ends, key=lambda end: (end.outcome or 0.0, -end.layer, -end.id), default=None) for of in (max, min)
        )
        if best and worst and best.outcome != worst.outcome:
            by_id = {each.id: each for each in question.plain_steps}
            sides = [self._whole(steps_to(by_id, end), question.origin) for end in (best, worst)]
            if all(sides):
                yield "attempts", _attempts(*map(native_turns, sides)) | named

    def _prompt(self, question: QuestionRecord, ends: Sequence[PlainStep]) -> Row:
        """The question as reinforcement begins with it, under the names that verl (`reward_model`) and SkyRL
        (`reward_spec`) read, and how the teacher's plain attempts fared."""
        state = State(_asked(question.question, question.origin), "think", 0)
        golds, origin = {"target": question.golden_answers}, question.origin
        by_id = {each.id: each for each in question.plain_steps}
        tries = sum(end.draws for end in ends)
        queries = [sum(step.action_type == "query" for step in steps_to(by_id, end)) for end in ends]
        facts = {
            "question_id": question.question_id,
            "question": question.question,
            "split": origin.split,
            "attempts": tries,
            "pass_rate": sum(end.draws * end.right for end in ends) / tries if tries else None,
            "searches": sum(end.draws * n for end, n in zip(ends, queries, strict=True)) / tries if tries else None,
            "hops": question.hops,
            "gold_ids": question.gold_passages or [],
        }
        return {
            "data_source": origin.dataset,
            "prompt": native_turns(Tools().messages(self._prompts, state, BEST_FIRST)),
            "ability": "search",
            "reward_model": {"style": "rule", "ground_truth": golds},
            "reward_spec": {"method": "rule", "ground_truth": golds},
            "extra_info": facts,
        }

    def _whole(self, steps: Sequence[PathStep] | Sequence[PlainStep], origin: Origin) -> Sequence[Message]:
        """All turns of an attempt; none where they cannot be told."""
        last = steps[-1]
        action: AgentAction = "conclude" if origin.max_steps == last.layer + 1 else "think"
        before = self._before(last.prompt, origin, _searches((origin, each.prompt) for each in steps), action)
        return [*before.turns, _turn(before, last.response, last.action_type, last.content or "")] if before else ()

    def _before(
        self, prompt: Sequence[Message], origin: Origin, searches: Searches, action: AgentAction | None = None
    ) -> Before | None:
        """What stands before the steps of a state; None is counted."""
        if origin.agent is not None:
            return Before(tuple(prompt))
        question, thoughts, _ = shown_in(prompt[-1].content)
        searches = {**searches, **_searches([(origin, prompt)])}
        calls, observed, evidence = list[str](), list[Observation](), ""
        for thought, kind, content in _steps(thoughts):
            if kind == "evidence":
                evidence = _lines(evidence, thought + content)
            elif (found := searches.get((origin.config_hash, content))) is None:
                self.left_out += 1
                return None
            else:
                calls.append(_call(evidence, thought, content))
                observed.append(Observation(content, tuple(found)))
                evidence = ""
        state = State(_asked(question, origin), action or "think", len(calls), tuple(calls), observed=tuple(observed))
        return Before(Tools().messages(self._prompts, state, BEST_FIRST), evidence)


def _asked(question: str, origin: Origin) -> Question:
    return Question(id="q", question=question, metadata={"style": origin.style} if origin.style else {})


def _searches(prompts: Iterable[tuple[Origin, Sequence[Message]]]) -> Searches:
    found = {}
    for origin, prompt in prompts:
        _, thoughts, passages = shown_in(prompt[-1].content)
        if passages is not None and (steps := [*_steps(thoughts)]):
            found[origin.config_hash, steps[-1][2]] = passages
    return found


def _steps(thoughts: str) -> Iterator[tuple[str, str, str]]:
    """Of each step its words before the tag, the tag, and what is in it."""
    begins = 0
    for end in _END_OF_STEP.finditer(thoughts):
        said, _, content = thoughts[begins : end.start()].partition(f"<{end[1]}>")
        yield said, end[1], content.strip()
        begins = end.end()


def _turn(before: Before, response: str, action_type: ActionType | None, content: str) -> Message:
    evidence, said = before.evidence, response.partition(f"<{action_type}>")[0]
    if evidence is None:
        text = response
    elif action_type == "query":
        text = _call(evidence, said, content)
    else:
        text = _lines(said + content) if action_type == "evidence" else _lines(evidence, response)
    return Message(role="assistant", content=text)


def _call(evidence: str, said: str, query: str) -> str:
    thought = said.strip().removesuffix(LEADS["query"]).strip()
    return call_text(_lines(evidence, thought), SEARCH, {"query": without_tool_tags(query)})


def _lines(*texts: str) -> str:
    return "\n".join(filter(None, (without_tool_tags(each).strip() for each in texts)))


def _sharegpt(turns: Sequence[Message]) -> Row:
    return {"conversations": sharegpt_turns(turns[1:]), "system": turns[0].content.removesuffix(SIGNATURE)}


def _attempts(best: list[dict[str, Any]], worst: list[dict[str, Any]]) -> Row:
    """Two attempts behind the turns that they share. train: whether a turn is the agent's own."""
    shared = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(best, worst, strict=False)))
    shared -= best[shared - 1]["role"] == "assistant"  # what both found may be shown with other words behind it
    sides = {"chosen": best[shared:], "rejected": worst[shared:]}
    marked = {name: [turn | {"train": turn["role"] == "assistant"} for turn in side] for name, side in sides.items()}
    return {"prompt": best[:shared]} | marked
