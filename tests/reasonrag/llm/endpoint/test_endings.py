"""The reasons that endpoints give for the end of a reply."""

from __future__ import annotations

import pytest

from reasonrag.agent.parsing import ParsedReply, parse_reply
from reasonrag.llm.chat import Completion
from reasonrag.llm.endpoint.endings import Ending, ending_of, meaning_of

REASONS: dict[Ending, str] = {
    "stopped": "stop STOP Stop stopped eos EOS eos_token end_turn END_TURN end-of-turn endOfText stop_sequence "
    "stop_token COMPLETE completed FINISH finished normal FinishReason.STOP FINISH_REASON_STOP finish_reason_stop "
    "FinishReason.FINISH_REASON_STOP StopReason.END_TURN CompletionsFinishReason.STOPPED <FinishReason.STOP:1>",
    "cut": "length LENGTH Length max_tokens MAX_TOKENS max-tokens maxTokens model_length token_limit max_output_tokens "
    "max_new_tokens max_completion_tokens max_length token_limit_reached time_limit FinishReason.MAX_TOKENS "
    "FINISH_REASON_MAX_TOKENS finish_reason_length limit truncated incomplete model_context_window_exceeded repetition",
    "withheld": "content_filter CONTENT_FILTER content-filter content_filtered safety SAFETY IMAGE_SAFETY recitation "
    "RECITATION BLOCKLIST prohibited_content PROHIBITED_CONTENT SPII guardrail_intervened ERROR_TOXIC sensitive "
    "FinishReason.SAFETY FINISH_REASON_RECITATION content_filter:SAFETY ResponsibleAIPolicyViolation blocked",
    "refused": "refusal REFUSAL refused FinishReason.REFUSAL",
    "too_long": "context_length_exceeded context_window_exceeded exceed_context_size_error prompt_too_long",
    "unknown": "other OTHER load none null unknown unspecified FINISH_REASON_UNSPECIFIED pause_turn weird 1 "
    "tool_calls TOOL_CALLS function_call tool_use ratelimit nonstop unstoppable stop_loss",
}


@pytest.mark.parametrize(("reason", "ending"), [(each, end) for end, said in REASONS.items() for each in said.split()])
def test_a_reason_is_read_in_any_spelling(reason: str, ending: Ending) -> None:
    """Case, spaces, underscores, hyphens and the name of an enumeration do not matter."""
    for spelled in (reason, f" {reason} ", reason.swapcase(), reason.replace("_", " ")):
        assert ending_of(Completion(text="", finish_reason=spelled)) == ending


@pytest.mark.parametrize("reason", "error ERROR abort aborted cancelled canceled USER_CANCEL network_error".split())
def test_what_broke_off_is_no_end(reason: str) -> None:
    """Another attempt may bring the whole reply."""
    assert meaning_of(reason) == "broken_off"


OPEN, CLOSED = "So the next query is <query>one two", "So the next query is <query>one two</query>"
STEPS: dict[str, tuple[Completion, str]] = {
    "stopped": (Completion(text=OPEN, finish_reason="end_turn"), "query"),
    "stopped to call a tool": (Completion(text=OPEN, finish_reason="tool_calls", called=True), "query"),
    "cut": (Completion(text=OPEN, finish_reason="MAX_TOKENS"), "cut_off"),
    "at the limit, and said to have stopped": (Completion(text=OPEN, finish_reason="stop", at_limit=True), "cut_off"),
    "at the limit, for no reason": (Completion(text=OPEN, finish_reason="", at_limit=True), "cut_off"),
    "at the limit before any text": (Completion(text="", finish_reason="STOP", at_limit=True), "reasoning_cut"),
    "closed at the limit": (Completion(text=CLOSED, finish_reason="stop", at_limit=True), "query"),
    "closed, then cut": (Completion(text=f"{CLOSED} And fur", finish_reason="model_length"), "query"),
    "closed for no reason": (Completion(text=CLOSED, finish_reason=""), "query"),
    "closed for a strange reason": (Completion(text=CLOSED, finish_reason="OTHER"), "query"),
    "closed, then withheld": (Completion(text=f"{CLOSED} How to", finish_reason="SAFETY"), "query"),
    "open for no reason": (Completion(text=OPEN, finish_reason=""), "unknown_end"),
    "open for a strange reason": (Completion(text=OPEN, finish_reason="OTHER"), "unknown_end"),
    "open for a call that is none": (Completion(text=OPEN, finish_reason="tool_calls"), "unknown_end"),
    "withheld in the middle": (Completion(text=OPEN, finish_reason="RECITATION"), "withheld"),
    "withheld at the limit": (Completion(text=OPEN, finish_reason="safety", at_limit=True), "withheld"),
    "refused apart from the text": (Completion(text="", refusal="I cannot.", finish_reason="stop"), "refused"),
    "refused by its reason": (Completion(text="I cannot.", finish_reason="refusal"), "refused"),
    "refused and yet said": (Completion(text=CLOSED, refusal="I cannot.", finish_reason="stop"), "query"),
    "nothing for a prompt that is too long": (Completion(text="", finish_reason="context_length_exceeded"), "too_long"),
    "no tag for no reason": (Completion(text="Well.", finish_reason=""), "no_tag"),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_reply_is_a_step_where_it_is_known_to_be_whole(case: str) -> None:
    """It closes its tag itself, or it is known to have stopped below its limit."""
    reply, found = STEPS[case]
    parsed = parse_reply(reply.text, action="think", ending=ending_of(reply))
    assert (parsed.action_type if isinstance(parsed, ParsedReply) else parsed.cause) == found
