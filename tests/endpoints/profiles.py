"""Stand-ins for the endpoints of today: what each refuses, how it says so, and where it puts its reasoning.

Decides in which form a request is refused and an answer is given, never what a reply says. They imitate what providers
document and users report (`source`); none was compared with the provider itself. Knows no HTTP server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from reasonrag.errors import InputError, choices
from reasonrag.llm.chat import estimate_tokens

THOUGHT = "Okay, let me see. "
"""Every reasoning begins with it."""
_WITH_TAGS = (
    "This could be <query>something else</query>, or <evidence>None</evidence>, or even <answer>a guess</answer>. "
)
_SECOND_THOUGHT = "Wait, is that all there is to it? Let me check. "
_MOST_SECOND_THOUGHTS = 5
_SECOND_THOUGHTS = {"minimal": 0, "low": 0, "high": 3, "xhigh": 5, "max": 8}
"""By effort, how often each comes; once at any other."""

_NO_KEY = {
    "error": {
        "message": "Incorrect API key provided",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_api_key",
    }
}


@dataclass(frozen=True)
class Refusal:
    """Status and JSON body of a refused request."""

    status: int
    body: Any


@dataclass(frozen=True)
class RefusedParameter:
    """A parameter that is refused. only: the one value that would be accepted; None: none would. among: those that
    would."""

    name: str
    value: Any
    only: float | None = None
    among: Sequence[str] = ()


@dataclass(frozen=True)
class Reply:
    """One choice as the client receives it. tokens: all that were generated, reasoning_tokens included."""

    content: str | None
    finish_reason: str
    tokens: int
    reasoning: str = ""
    reasoning_tokens: int = 0


# -- the forms of errors -----------------------------------------------------------------------------------------


def _like_openai(refused: Sequence[RefusedParameter]) -> Refusal:
    """One parameter at a time, named in `param`."""
    first = refused[0]
    if first.among:
        *most, last = map(repr, first.among)
        code, message = "unsupported_value", f"'{first.name}' does not support '{first.value}' with this model."
        message += f" Supported values are: {', '.join(most)}, and {last}."
    elif first.only is None:
        code, message = "unsupported_parameter", f"'{first.name}' is not supported with this model."
        message += " Use 'max_completion_tokens' instead." if first.name == "max_tokens" else ""
    else:
        code, message = "unsupported_value", f"'{first.name}' does not support {first.value:g} with this model."
        message += f" Only the default ({first.only:g}) value is supported."
    message = f"{code.capitalize().replace('_', ' ')}: {message}"
    error = {"message": message, "type": "invalid_request_error", "param": first.name, "code": code}
    return Refusal(400, {"error": error})


def _like_google(refused: Sequence[RefusedParameter]) -> Refusal:
    """All parameters at once, in a list of one error."""
    said = [f'Invalid JSON payload received. Unknown name "{each.name}": Cannot find field.' for each in refused]
    violations = [{"description": each} for each in said]
    details = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}]
    error = {"code": 400, "message": "\n".join(said), "status": "INVALID_ARGUMENT", "details": details}
    return Refusal(400, [{"error": error}])


def _like_fastapi(refused: Sequence[RefusedParameter]) -> Refusal:
    """All parameters at once, each with its place in the request."""
    msg = "Extra inputs are not permitted"
    return Refusal(
        422,
        {
            "detail": [
                {"type": "extra_forbidden", "loc": ["body", each.name], "msg": msg, "input": each.value}
                for each in refused
            ]
        },
    )


def _like_anthropic(refused: Sequence[RefusedParameter]) -> Refusal:
    """One parameter at a time, named only in the message."""
    first = refused[0]
    deprecated = f"`{first.name}` is deprecated for this model."
    message = deprecated if first.only is None else f"{first.name}: Input should be {first.only:g}"
    error = {"code": "invalid_request_error", "message": message, "type": "invalid_request_error"}
    return Refusal(400, {"error": error})


# -- the stand-ins -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Profile:
    """How an endpoint differs from one that accepts everything. Without any value: not at all.

    source: a web address or an issue; docs/reference/endpoints.md says for which endpoint it stands.

    refuses: parameters that are refused. accepts: the only known ones, others are refused; empty: all are known. only:
        parameters with the one value that is accepted. unreasoned: those of both that are accepted where the reasoning
        is off. efforts: the values of reasoning_effort; empty: any. error: the form of a refusal. ignores: parameters
        that are accepted without effect.

    reasoning: where it is shown. hidden: nowhere. think: in the content, in a <think> block. headless: the same without
        the opening tag, which the chat template wrote. Otherwise the field of the message beside the content. Reasoning
        always counts against the token limit. stops_reasoning: a stop string ends the reasoning too (always so where it
        is part of the content). no_reasoning: fields of a request that switch it off. counted: reasoning tokens are in
        completion_tokens; else they are only in total_tokens. itemized: they are told in completion_tokens_details.

    path: of the address.
    """

    source: str = ""

    refuses: tuple[str, ...] = ()
    accepts: frozenset[str] = frozenset()
    only: Mapping[str, float] = field(default_factory=dict)
    unreasoned: frozenset[str] = frozenset()
    efforts: tuple[str, ...] = ()
    error: Callable[[Sequence[RefusedParameter]], Refusal] = _like_openai
    ignores: frozenset[str] = frozenset()

    reasoning: Literal["hidden", "think", "headless", "reasoning_content", "reasoning"] | None = None
    stops_reasoning: bool = False
    no_reasoning: Mapping[str, Any] = field(default_factory=dict)
    counted: bool = True
    itemized: bool = False

    path: str = "/v1"

    def refusal(self, sent: Mapping[str, Any]) -> Refusal | None:
        """The refusal of a request with these parameters, if it is one."""
        unknown = sorted(sent.keys() - self.accepts) if self.accepts else ()
        held = sent.keys() - (self.unreasoned if self._is_off(sent) else ())
        refused = [RefusedParameter(each, sent[each]) for each in (*self.refuses, *unknown) if each in held]
        fixed = [(each, sent[each], only) for each, only in self.only.items() if each in held]
        refused += [RefusedParameter(name, value, only) for name, value, only in fixed if value != only]
        if self.efforts and (effort := sent.get("reasoning_effort", self.efforts[0])) not in self.efforts:
            refused.append(RefusedParameter("reasoning_effort", effort, among=self.efforts))
        return self.error(refused) if refused else None

    def denial(self, headers: Mapping[str, str], api_key: str | None) -> Refusal | None:
        """The refusal of a request without the key; api_key None: any, or none, is accepted."""
        given = headers.get("Authorization", "").removeprefix("Bearer ")
        return None if api_key in (None, given) else Refusal(401, _NO_KEY)

    def reply(self, text: str, sent: Mapping[str, Any], *, stop: Sequence[str], limit: int | None) -> Reply:
        """A choice from a complete reply. stop: strings at which generation ends. limit: in tokens; None: none."""
        thought = "" if self.reasoning is None or self._is_off(sent) else self._reasoning_about(text, sent)
        if thought and self.reasoning in ("think", "headless"):
            opening = "<think>\n" if self.reasoning == "think" else ""
            return Reply(*_generated(f"{opening}{thought}\n</think>\n\n{text}", stop, limit))
        reasoning, ended, spent = _generated(thought, stop if self.stops_reasoning else (), limit)
        if ended == "length" or reasoning != thought:
            return Reply("" if ended == "length" else None, ended, spent, self._shown(reasoning), spent)
        content, ended, tokens = _generated(text, stop, None if limit is None else limit - spent)
        return Reply(content, ended, spent + tokens, self._shown(reasoning), spent)

    def add_reasoning(self, body: dict[str, Any], replies: Sequence[Reply]) -> None:
        """Add to a chat completion what this endpoint says of its reasoning."""
        reasoning_tokens = sum(each.reasoning_tokens for each in replies)
        for choice, reply in zip(body["choices"], replies, strict=True):
            if reply.reasoning and self.reasoning:
                choice["message"][self.reasoning] = reply.reasoning
        if self.itemized:
            body["usage"]["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
        if not self.counted:
            body["usage"]["completion_tokens"] -= reasoning_tokens

    def _reasoning_about(self, text: str, sent: Mapping[str, Any]) -> str:
        """A pure function of the reply and the effort. Has tags that must not count."""
        often = _SECOND_THOUGHTS.get(str(sent.get("reasoning_effort")), 1)
        return THOUGHT + _WITH_TAGS + _SECOND_THOUGHT * (often * (1 + len(text) % _MOST_SECOND_THOUGHTS))

    def _is_off(self, sent: Mapping[str, Any]) -> bool:
        return bool(self.no_reasoning) and all(sent.get(name) == value for name, value in self.no_reasoning.items())

    def _shown(self, reasoning: str) -> str:
        return "" if self.reasoning == "hidden" else reasoning


def _generated(text: str, stop: Sequence[str], limit: int | None) -> tuple[str, str, int]:
    """What is shown of a text, why it ended, and the tokens generated, the stop string included."""
    found = min(((at, each) for each in stop if (at := text.find(each)) >= 0), default=None)
    shown = text if found is None else text[: found[0]]
    tokens = estimate_tokens(shown if found is None else shown + found[1])
    if limit is None or tokens <= limit:
        return shown, "stop", tokens
    if estimate_tokens(shown) <= limit:
        return shown, "stop", limit
    return shown[: 4 * limit], "length", limit


PLAIN = Profile()
_ENABLE_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
_GPT_6 = Profile(
    source="anomalyco/models.dev#6639, experientiallabs/experiential#764, bolna-ai/bolna#1019",
    refuses=("max_tokens", "top_p", "logprobs", "tools"),
    only={"temperature": 1},
    unreasoned=frozenset(("top_p", "logprobs", "tools", "temperature")),
    efforts=("none", "low", "medium", "high", "xhigh"),
    reasoning="hidden",
    no_reasoning={"reasoning_effort": "none"},
    itemized=True,
)

PROFILES: dict[str, Profile] = {
    "gpt-4o": Profile(source="dev.to/max_bob, dimagi/open-chat-studio#3208", refuses=("reasoning_effort",)),
    "gpt-5": Profile(
        source="tmc/langchaingo#1355, MaartenGr/BERTopic#2423, pvliesdonk/markdown-vault-mcp#919",
        refuses=("max_tokens", "top_p", "stop", "logprobs"),
        only={"temperature": 1},
        efforts=("minimal", "low", "medium", "high"),
        reasoning="hidden",
        no_reasoning={"reasoning_effort": "minimal"},
        itemized=True,
    ),
    "gpt-6": _GPT_6,
    "gpt-6-astra": replace(_GPT_6, refuses=(*_GPT_6.refuses, "stop"), efforts=_GPT_6.efforts[1:], no_reasoning={}),
    "gemini": Profile(
        source="Vali-98/ChatterUI#227, mcpchecker/mcpchecker#188, discuss.ai.google.dev/t/127400",
        refuses=("seed",),
        error=_like_google,
        reasoning="hidden",
        no_reasoning={"reasoning_effort": "none"},
        counted=False,
        path="/v1beta/openai",
    ),
    "fastapi-strict": Profile(
        source="langchain-ai/langchain-azure#82",
        accepts=frozenset(("model", "messages", "temperature", "top_p", "max_tokens", "stop", "n", "stream")),
        error=_like_fastapi,
    ),
    "anthropic": Profile(
        source="platform.claude.com/docs/en/api/openai-sdk, theopenco/llmgateway#2359",
        only={"n": 1},
        error=_like_anthropic,
        ignores=frozenset(("seed", "logprobs")),
    ),
    "qwen3-think": Profile(
        source="docs.vllm.ai/en/latest/features/reasoning_outputs, vllm-project/vllm#21130",
        reasoning="think",
        no_reasoning=_ENABLE_THINKING,
    ),
    "r1": Profile(source="deepseek-ai/DeepSeek-R1#526, vllm-project/vllm#22507", reasoning="headless"),
    "vllm-reasoning": Profile(
        source="docs.vllm.ai/en/latest/features/reasoning_outputs, vllm-project/vllm#52393",
        reasoning="reasoning",
        stops_reasoning=True,
        no_reasoning=_ENABLE_THINKING,
    ),
    "deepseek": Profile(
        source="api-docs.deepseek.com/guides/thinking_mode",
        ignores=frozenset(("temperature", "top_p")),
        reasoning="reasoning_content",
        no_reasoning={"thinking": {"type": "disabled"}},
        itemized=True,
    ),
}


def find_profile(name: str | None) -> Profile:
    """The profile of this name; without one, an endpoint that accepts everything. Raises InputError."""
    if name is None:
        return PLAIN
    if name not in PROFILES:
        raise InputError(f"there is no profile {name!r}; {choices(name, PROFILES)}")
    return PROFILES[name]
