"""The reasoning of a reply: what a model says before its answer, apart from the text or between marks within it.

Decides where reasoning ends and the reply begins, and when a reply holds nothing else. A journal keeps what the
endpoint said; readers of replies remove the reasoning first, so that tags inside it never count. Knows no step.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from reasonrag.llm.chat import ChatRequest, Completion, tokens_within
from reasonrag.llm.endpoint.endings import ending_of


class _Mark(NamedTuple):
    """What stands around some models' reasoning, as regular expressions.

    leads: the opening mark at the beginning, if it is another there. prose: replies may use these words otherwise, so a
    closing mark that nothing opened counts only after a sentence or a line.
    """

    opening: str
    closing: str
    leads: str = ""
    prose: bool = False


def _tags(name: str, *, prose: bool = False) -> _Mark:
    """`<name>..</name>` in brackets of any kind; but `[Thought]`, which nothing closes, is a headline."""
    end = rf"\s*[|\uff5c]?(?:\w{{1,20}}[:_])?{name}(?:_\w{{1,20}})?\s*[|\uff5c]?[>\]}}▷】」』⟩〉》»]"
    other = r"[\[{◁【「『⟨〈《«]"
    opening, closing = rf"(?:<|{other})[|\uff5c]?{end}", rf"(?:<|{other})[|\uff5c]?\s*/{end}"
    leads = rf"<[|\uff5c]?{end}|{other}[|\uff5c]?{end}(?=[\s\S]*?{closing})"
    return _Mark(opening, closing, leads, prose=True) if prose else _Mark(opening, closing)


_MESSAGE = r"(?:<\|start\|>\s*assistant\s*)?<\|channel\|>\s*(?:{}).{{0,99}}?<\|message\|>"
_THINKS, _FINAL = _MESSAGE.format("analysis|commentary"), r"(?-i:(?<![ >\"'])assistantfinal)"
_HERE = r"here(?: is|['\u2019]s)"
_MARKS = (
    # Open WebUI; Ollama's command line
    _Mark(r"<details\b", "</details>", r"<details\s++type=[\"']?reasoning\b[^>]{0,200}>", prose=True),
    _Mark(r"Thinking\.\.\.", r"\.\.\.done thinking\.", r"Thinking\.\.\.(?=[\s\S]*?\.\.\.done thinking\.)", prose=True),
    # gpt-oss (https://developers.openai.com/cookbook/articles/openai-harmony); servers may leave its tokens out
    _Mark(
        _THINKS,
        rf"(?:<\|end\|>\s*)?{_MESSAGE.format('final')}|{_FINAL}",
        rf"{_THINKS}|(?-i:analysis|commentary)(?:(?=(?-i:[^\W\d_a-z]))|(?=[\s\S]*?{_FINAL}))",
    ),
    # OpenThinker and Sky-T1; Command A; Apertus; MedGemma; Gemma 4; Granite 3.2
    _Mark(r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>(?:\s*<\|begin_of_solution\|>)?|<\|begin_of_solution\|>"),
    _Mark(r"<\|START_THINKING\|>", r"<\|END_THINKING\|>(?:\s*<\|START_\w+\|>)?|<\|START_(?:RESPONSE|TEXT)\|>"),
    _Mark(r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    _Mark(r"<unused94>(?:thought\b)?", "<unused95>"),
    _Mark(r"<\|channel>(?:thought\b)?", r"<channel\|>"),
    _Mark(
        "(?!)", rf"{_HERE} my response:", rf"{_HERE} my thought process:(?=[\s\S]*?{_HERE} my response:)", prose=True
    ),
    _Mark("(?!)", "## Final Response", r"## Thinking\b(?=[\s\S]*?## Final Response)", prose=True),  # HuatuoGPT-o1
    # the rest, which also match some of those before: Qwen, DeepSeek, GLM; <seed:think> of Seed-OSS, <longcat_think>;
    # [THINK] of Magistral; ◁think▷ of Kimi-VL
    _tags("think"),
    *(_tags(word, prose=True) for word in ("thinking", "thoughts?", "reasoning", "reason", "reflection", "analysis")),
    *(_tags(word, prose=True) for word in ("scratch_?pad", "rationale", "cot")),
)
"""Those that are known, mostly by vLLM's parsers (https://github.com/vllm-project/vllm/tree/main/vllm/reasoning)."""
_BEFORE = r"(?:\s|\ufeff|<s>|<bos>|<\|(?:begin_of_text|assistant|im_start)\|>)*"
"""What a server may leave of its template. Not possessive: Python before 3.11.5 matches such groups wrongly."""
_LEADING = re.compile(rf"{_BEFORE}(?:{'|'.join(f'({each.leads or each.opening})' for each in _MARKS)})", re.IGNORECASE)
_STRICT = "|".join(each.closing for each in _MARKS if not each.prose)
_IN_A_TAG = rf"<(?P<tag>\w{{1,20}})>(?:(?!(?=<)(?:<\w{{1,20}}>|{_STRICT}))[\s\S])*?</(?P=tag)>"
"""Any tag up to its end: marks in it are what the reply speaks of, but for those such as `</think>`."""
_CLOSING = re.compile("|".join([*(f"({each.closing})" for each in _MARKS), _IN_A_TAG]), re.IGNORECASE)
_MAY_CLOSE = re.compile(
    r"/[\s|\uff5c]*[\w:]{0,21}(?:think|thou|reas|refl|anal|scra|rati|cot|deta)"
    r"|\|>|done thinking|assistantfinal|unused95|my response:|final response"
)
"""In every text that holds a closing mark, in small letters: found a hundred times as fast."""
_ENDS = "\n.!?…。:;\"')]*>"
AMPLE_TOKENS = 2048
"""A --max-reply-tokens from which on reasoning usually leaves room for a step."""
ALL_AS_REASONING = "its whole reply as reasoning and no content, which is read only where it ends as a step does"


def more_room(flags: str = "--") -> str:
    """What to do about a --max-reply-tokens that the reasoning uses up. flags: prefix of the model's flags."""
    less = "--reasoning-effort low" if flags == "--" else f"""{flags}extra-body '{{"reasoning_effort": "low"}}'"""
    return (
        f"raise it, or ask for less reasoning with {less} "
        f"""(Qwen3: {flags}extra-body '{{"chat_template_kwargs": {{"enable_thinking": false}}}}')"""
    )


def parser_advice(flags: str = "--") -> str:
    """What to do about replies that an endpoint gives as reasoning. flags: prefix of the model's flags."""
    return (
        "give the server (vLLM, SGLang) the --reasoning-parser of this model, or none, or turn thinking off with "
        f"""{flags}extra-body '{{"chat_template_kwargs": {{"enable_thinking": false}}}}'"""
    )


@lru_cache(maxsize=256)  # asked of a reply while it is read, recorded and used
def _leading(said: str) -> re.Match[str] | None:
    return _LEADING.match(said)


@lru_cache(maxsize=256)
def split_reasoning(said: str) -> tuple[str, str]:
    """The reasoning at the beginning of a text, without its marks, and the rest; a text without any is unchanged.

    Reasoning is the leading blocks, the last of which may be cut off; or, as some templates open the block within the
    prompt, everything up to a closing mark that none opened: what vLLM's parsers take for it
    (https://github.com/vllm-project/vllm/blob/main/vllm/reasoning/basic_parsers.py, `extract_reasoning`).
    """
    blocks, start = list[str](), 0
    if closing := _unopened(said):
        blocks, start = [said[: closing.start()]], closing.end()
    while opening := _LEADING.match(said, start) if start else _leading(said):
        closing = re.compile(_mark_of(opening).closing, re.IGNORECASE).search(said, opening.end())
        blocks.append(said[opening.end() : closing.start() if closing else None])
        start = closing.end() if closing else len(said)
    return "\n\n".join(each.strip() for each in blocks if each.strip()), said[start:].lstrip() if blocks else said


def _mark_of(found: re.Match[str]) -> _Mark:  # of `_LEADING` or `_CLOSING`, which have one group for each
    return _MARKS[(found.lastindex or 1) - 1]


@lru_cache(maxsize=256)
def _unopened(said: str) -> re.Match[str] | None:
    """The first closing mark that none opened before it; None where an opening one leads."""
    seen = set[_Mark]()
    leads = _leading(said) or not _MAY_CLOSE.search(said.lower())
    for closing in () if leads else _CLOSING.finditer(said):
        if closing["tag"]:
            continue
        mark, at = _mark_of(closing), closing.start()
        if mark in seen or (mark.prose and said[max(0, at - 9) : at].rstrip(" \t")[-1:] not in _ENDS):
            continue
        if not re.compile(mark.opening, re.IGNORECASE).search(said, 0, at):
            return closing
        seen.add(mark)
    return None


def without_reasoning(completion: Completion) -> Completion:
    """The completion with all its reasoning in `reasoning` and none in `text`."""
    within, text = split_reasoning(completion.text)
    reasoning = "\n\n".join(each for each in (completion.reasoning.strip(), within) if each)
    whole, kept = len(completion.text), completion.logprobs
    if kept is not None:
        kept = tokens_within(kept, whole - len(text), whole)
    elif (text, reasoning) == (completion.text, completion.reasoning):
        return completion
    return completion.model_copy(update={"text": text, "reasoning": reasoning, "logprobs": kept})


def as_read(request: ChatRequest, completion: Completion) -> Completion:
    """`without_reasoning`; but reasoning that ends as the reply should, with nothing behind it, is the reply."""
    said, ends = completion.reasoning.strip(), request.sampling.stop
    if said and gave_all_as_reasoning(completion) and said.endswith(ends) and sum(map(said.count, ends)) == 1:
        completion = completion.model_copy(update={"text": said, "reasoning": "", "logprobs": None})
    return without_reasoning(completion)


def gave_all_as_reasoning(completion: Completion) -> bool:
    """Whether a reply that ended by itself has nothing but reasoning apart from its text: mostly, the endpoint's parser
    took the reply for it (https://github.com/vllm-project/vllm/issues/55420 tells of a model that does so itself)."""
    bare = bool(completion.reasoning.strip()) and not completion.text.strip()
    return bare and ending_of(completion) in ("stopped", "unknown")


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
    """Whether the limit was reached before anything else was said. `read`: without reasoning in its text."""
    return ending_of(read) == "cut" and not read.text.strip()


def stopped_in_reasoning(request: ChatRequest, completion: Completion) -> bool:
    """Whether a stop string seems to have cut a reply within its reasoning, where the tags of an answer may occur.

    vLLM holds stop strings against the reasoning, too (https://github.com/vllm-project/vllm/issues/52393). Not seen
    where the template opens the think block within the prompt and no parser takes it off.
    """
    if not (completion.reasoning or split_reasoning(completion.text)[0]):
        return False  # as most
    if not _stop_strings_matter(request) or ending_of(completion) not in ("stopped", "unknown"):
        return False
    read = as_read(request, completion)
    return bool(read.reasoning) and not read.text.strip()


def stops_may_cut(request: ChatRequest, completion: Completion) -> bool:
    """Whether a reply shows that stop strings cut the model's reasoning, or could do so unseen."""
    opening = _leading(completion.text)
    unseen = _unopened(completion.text) or (opening and not _leading(opening[0]))  # taken for one as it is closed
    return (_stop_strings_matter(request) and bool(unseen)) or stopped_in_reasoning(request, completion)


def _stop_strings_matter(request: ChatRequest) -> bool:
    return bool(request.sampling.stop) and not request.think_in_format
