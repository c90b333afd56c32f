"""The specification of a model: name, addresses, limits, sampling and price.

Decides what a second model shares with the first. Knows the records of settings, not what the model is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import orjson

from reasonrag.errors import InputError
from reasonrag.llm.chat import ChatModel, Sampling
from reasonrag.llm.endpoint.endpoint import KEY_VARIABLE, EndpointModel, Limits
from reasonrag.llm.expected_usage import ExpectedUsage
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.offline import STUDENT, OfflineTeacher
from reasonrag.llm.prices import SELF_HOSTED, Price, find_price, find_provider, price_list, prices_given
from reasonrag.llm.settings import LimitSettings, ModelSettings
from reasonrag.settings import OWN_EFFORT

_REASON = re.compile(r"gpt-(5|6)(?!.*-chat)|o[1-9]\b|.*(reasoner|thinking|-r1\b|qwq|magistral|gpt-oss)", re.IGNORECASE)
_TAKE_NONE = re.compile(r"gpt-(5\.|6)(?!.*astra)", re.IGNORECASE)
"""Names of models that reason where nothing is sent, and of those that take the effort none: reported, not verified."""
_OF_REASONING = re.compile(r'"[^"]*(reason|think|effort)[^"]*":', re.IGNORECASE)
_OFF = re.compile(
    rf"""{_OF_REASONING.pattern}("(none|disabled)"|false|{{[^{{}}]*("type":"disabled"|"enabled":false))"""
)
"""In JSON of further fields: a name that is about reasoning, and one whose value switches it off."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """See the module's docstring.

    name: recorded with its answers. price: None if unknown. addresses: base URLs; none: OPENAI_BASE_URL, else OpenAI's.
        key_variable: the environment variable with its key. flags: prefix of its flags in messages. name_flag: that of
        its name. recorded_as: its name in a journal; None if the journal is its own, or it is the run's teacher.
        in_process: the offline teacher, which needs no address. settles_effort: whether its trial decides on the
        reasoning effort, see `asked`.
    """

    name: str
    sampling: Sampling
    limits: Limits
    price: Price | None = None
    addresses: tuple[str, ...] = ()
    key_variable: str = KEY_VARIABLE
    flags: str = "--"
    name_flag: str = "--model"
    recorded_as: str | None = None
    in_process: bool = False
    settles_effort: bool = False

    @classmethod
    def of(
        cls, model: ModelSettings, limits: LimitSettings, name: str, *, top_p: float = 1.0, parts: int = 1
    ) -> ModelSpec:
        """The model that the settings describe. name: the one its answers go by. parts: see `Limits`."""
        return cls(
            name,
            Sampling(
                temperature=1.0 if model.temperature is None else model.temperature,
                top_p=top_p,
                max_tokens=model.max_reply_tokens,
                extra_body=model.extra_body,
            ),
            Limits.of(limits, parts),
            price=_price_of(model, name, model.base_url),
            addresses=tuple(model.base_url),
            in_process=name in (OFFLINE, STUDENT) and not model.base_url,
        ).asked(model.reasoning_effort)

    def second(
        self, model: ModelSettings, name: str, *, name_flag: str, key_variable: str, self_hosted: bool = False
    ) -> ModelSpec:
        """Another model of the same command, at its own address or else at this one's, and asked like this one.

        name, name_flag, key_variable: see the class; an address of its own gets neither the key nor the rate limits
        that the user set. self_hosted: without a known price it costs nothing there, unless that is a provider's.
        """
        own, temperature = bool(model.base_url), model.temperature
        price = _price_of(model, name, model.base_url or self.addresses)
        if price is None and self_hosted and own and find_provider(model.base_url) is None:
            price = SELF_HOSTED
        there: dict[str, Any] = {}
        if own:
            limits = replace(self.limits, rpm=None, tpm=None)
            there = {"addresses": tuple(model.base_url), "key_variable": key_variable, "limits": limits}
        sampled: dict[str, Any] = {"extra_body": model.extra_body, "logprobs": False}
        sampled |= {} if temperature is None else {"temperature": temperature}
        return replace(
            self,
            **there,
            name=name,
            sampling=self.sampling.model_copy(update=sampled),
            price=price,
            flags=f"{name_flag.removesuffix('-model')}-" if own else "--",
            name_flag=name_flag,
            recorded_as=name,
            in_process=name in (OFFLINE, STUDENT) and not own,
        ).asked(OWN_EFFORT)

    def with_native_calls(self, agent: str, *, served_here: bool = False) -> ModelSpec:
        """The same model, sent `tools`. Raises InputError for an agent without any, and where there is no endpoint."""
        if agent != "tools":
            raise InputError(f"agent.native is for --agent tools, and not for {agent}")
        if served_here or self.in_process:
            raise InputError(
                f"agent.native is for an endpoint (--base-url), and {self.name} runs here: leave it out. The calls are "
                "then text in the same prompts"
            )
        return replace(self, sampling=self.sampling.model_copy(update={"native_tools": True}))

    def likeliest(self, role: str) -> ModelSpec:
        """The same model, asked at temperature 0 and without tools, and recorded in a role of its own."""
        sampling = self.sampling.model_copy(update={"temperature": 0.0, "top_p": 1.0, "native_tools": False})
        return replace(self, sampling=sampling, recorded_as=f"{self.name} ({role})")

    @property
    def reasons(self) -> bool:
        """Whether replies are expected to have reasoning, by what is sent and by the model's name, before any trial."""
        effort, said = self.sampling.reasoning_effort, orjson.dumps(self.sampling.extra_body or {}).decode()
        if effort or _OF_REASONING.search(said):
            return effort != "none" if effort else not _OFF.search(said)
        name = self.name.rpartition("/")[2]
        return bool(_REASON.match(name)) and not (self.settles_effort and _TAKE_NONE.match(name))

    def expected(self, usage: ExpectedUsage) -> ExpectedUsage:
        """The usage, with reasoning where that is expected."""
        return usage.with_reasoning(self.sampling.max_tokens) if self.reasons else usage

    def asked(self, effort: str | None) -> ModelSpec:
        """The same model with the reasoning effort that the user names; None: its trial decides on one, unless
        `extra_body` is about reasoning. Raises InputError where both name one."""
        said = orjson.dumps(self.sampling.extra_body or {}).decode()
        if effort not in (None, OWN_EFFORT) and '"reasoning_effort"' in said:
            raise InputError(f"--reasoning-effort {effort}: --extra-body has a reasoning_effort, too; leave one out")
        sampling = self.sampling.model_copy(update={"reasoning_effort": None if effort == OWN_EFFORT else effort})
        return replace(self, sampling=sampling, settles_effort=effort is None and not _OF_REASONING.search(said))

    def resumed(self, recorded: str | None) -> ModelSpec:
        """The same model with the recorded effort of a run that has begun, if the user names none."""
        return self.asked(recorded) if recorded and self.settles_effort else self

    async def settled(self, model: ChatModel | None, recorded: str | None = None) -> ModelSpec:
        """`resumed`, else with the reasoning effort that its trial decides on, if any. Raises InputError as `check`."""
        if recorded or not (self.settles_effort and isinstance(model, EndpointModel)):
            resumed = self.resumed(recorded)
            if resumed.sampling.reasoning_effort and isinstance(model, EndpointModel):
                model.sampling = resumed.sampling
            return resumed
        model.settles_effort = True
        await model.check()
        return self.asked(model.effort or OWN_EFFORT)

    def open(self, opened: AsyncExitStack, *, say: Callable[[str], None]) -> ChatModel:
        """Open it until `opened` closes. say: told of its endpoint. Raises InputError: a malformed address, no key."""
        if self.in_process:
            return OfflineTeacher(name=self.name)
        model = EndpointModel(
            self.name,
            self.limits,
            sampling=self.sampling,
            base_urls=self.addresses,
            flags=self.flags,
            key_variable=self.key_variable,
            name_flag=self.name_flag,
        )
        opened.push_async_callback(model.close)
        model.say = say
        return model


@dataclass
class LazyModel:
    """Opens a model when it is first called, and gives the same one later. model: the caller's own, in its place."""

    spec: ModelSpec
    opened: AsyncExitStack
    say: Callable[[str], None]
    model: ChatModel | None = None

    async def __call__(self) -> ChatModel:
        self.model = self.model or self.spec.open(self.opened, say=self.say)
        return self.model


def _price_of(model: ModelSettings, name: str, addresses: Sequence[str]) -> Price | None:
    """The user's price, else that of the list. A price of 0 is one."""
    given = prices_given(model.price).get(name)
    return given or find_price(name, addresses=addresses, extra_body=model.extra_body)


def check_prices(
    say: Callable[[str], None], *models: ModelSpec | None, given: Sequence[str] = (), capped: bool
) -> None:
    """Say of which models no price is known, and which given price (`--price`) is none of theirs. Raises InputError
    where --max-cost has to count a model without a price (capped)."""
    used = [each for each in models if each]
    for name in prices_given(given).keys() - {each.name for each in used}:
        say(f"--price {name}: no model here is called that, so this price is not used")
    for model in (each for each in used if each.price is None):
        how = f"give --price {model.name}=IN,OUT, in dollars per million tokens (0,0 for a server of your own)"
        if capped:
            raise InputError(f"--max-cost needs the price of {model.name}, which {price_list()} does not have: {how}")
        say(f"no price is known for {model.name}, so costs are not shown and --max-cost cannot be used; {how}")


def model_name(model: ModelSettings, *, of_atlas: bool) -> str:
    """The model that the settings name; by default offline for atlas. Raises InputError for other questions."""
    if model.model:
        return model.model
    if of_atlas:
        return OFFLINE
    raise InputError(
        "give --model: a model of your endpoint (what OpenAI or --base-url serves), or offline for the "
        "extractive teacher that costs nothing"
    )
