"""The reasoning of a reply: what a model says before its answer, apart from the text or in think blocks within it.

Decides where reasoning ends and the reply begins, and when a reply holds nothing else. A journal keeps what the
endpoint said; readers of replies remove the reasoning first, so that tags inside it never count. Knows no step and no
tag of an agent.
"""

from __future__ import annotations

import re

from reasonrag.llm.chat import ChatRequest, Completion, tokens_within
from reasonrag.llm.endings import ending_of

_OPENING = re.compile(r"<\s*think\s*>", re.IGNORECASE)
_LEADING = re.compile(rf"\s*{_OPENING.pattern}", re.IGNORECASE)
_CLOSING = re.compile(r"<\s*/\s*think\s*>", re.IGNORECASE)
AMPLE_TOKENS = 2048
"""A --max-reply-tokens from which on reasoning usually leaves room for a step."""


def more_room(flags: str = "--") -> str:
    """What to do about a --max-reply-tokens that the reasoning uses up. flags: prefix of the model's flags."""
    return (
        f"""raise it, or ask for less reasoning with {flags}extra-body '{{"reasoning_effort": "low"}}' """
        """(Qwen3: '{"chat_template_kwargs": {"enable_thinking": false}}')"""
    )


def split_reasoning(said: str) -> tuple[str, str]:
    """The reasoning at the beginning of a text, without its tags, and the rest; a text without any is unchanged.

    Reasoning is the leading think blocks, the last of which may be cut off; or, as some templates open the block within
    the prompt, everything up to a closing tag that none opened: what vLLM's parsers take for it
    (https://github.com/vllm-project/vllm/blob/main/vllm/reasoning/basic_parsers.py, `extract_reasoning`).
    """
    blocks, end = [], 0
    if closing := _unopened(said):
        blocks, end = [said[: closing.start()]], closing.end()
    while opening := _LEADING.match(said, end):
        closing = _CLOSING.search(said, opening.end())
        blocks.append(said[opening.end() : closing.start() if closing else None])
        end = closing.end() if closing else len(said)
    return "\n\n".join(each.strip() for each in blocks if each.strip()), said[end:].lstrip() if blocks else said


def _unopened(said: str) -> re.Match[str] | None:
    """The first closing tag, if none was opened before it."""
    closing = _CLOSING.search(said)
    return None if closing and _OPENING.search(said, 0, closing.start()) else closing


def without_reasoning(completion: Completion) -> Completion:
    """The completion with all its reasoning in `reasoning` and none in `text`."""
    within, text = split_reasoning(completion.text)
    reasoning = "\n\n".join(each for each in (completion.reasoning.strip(), within) if each)
    whole, kept = len(completion.text), completion.logprobs
    if kept is not None:
        kept = tokens_within(kept, whole - len(text), whole)
    return completion.model_copy(update={"text": text, "reasoning": reasoning, "logprobs": kept})


def reasons(completion: Completion) -> bool:
    """Whether a reply shows that its model reasons before it answers."""
    read = without_reasoning(completion)
    return bool(read.reasoning or read.reasoning_tokens) or is_only_reasoning(read)


def too_little_room(count: int, *, max_tokens: int) -> list[str]:
    """A warning of replies that were nothing but reasoning, if there are any."""
    if not count:
        return []
    replies = "1 reply was" if count == 1 else f"{count:,} replies were"
    return [f"{replies} nothing but reasoning, cut at --max-reply-tokens {max_tokens}: {more_room()}"]


def is_only_reasoning(read: Completion) -> bool:
    """Whether the token limit was reached before anything but reasoning was said, perhaps unseen. `read`: without
    reasoning in its text."""
    return ending_of(read) == "cut" and not read.text.strip()


def stopped_in_reasoning(request: ChatRequest, completion: Completion) -> bool:
    """Whether a stop string seems to have cut a reply within its reasoning, where the tags of an answer may occur.

    vLLM holds stop strings against the reasoning, too (https://github.com/vllm-project/vllm/issues/52393). Not seen
    where the template opens the think block within the prompt and no parser takes it off: such a reply looks like an
    answer.
    """
    if not _stop_strings_matter(request) or ending_of(completion) not in ("stopped", "unknown"):
        return False
    read = without_reasoning(completion)
    return bool(read.reasoning) and not read.text.strip()


def stops_may_cut(request: ChatRequest, completion: Completion) -> bool:
    """Whether a reply shows that stop strings cut the model's reasoning, or could do so unseen."""
    unseen = _stop_strings_matter(request) and _unopened(completion.text) is not None
    return unseen or stopped_in_reasoning(request, completion)


def _stop_strings_matter(request: ChatRequest) -> bool:
    return bool(request.sampling.stop) and not request.think_in_format
