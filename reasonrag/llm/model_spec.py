"""A model as a record: which one, where it is asked and how fast, how it is sampled, and what its tokens cost.

Decides what a model that stands beside another one shares with it. Knows neither settings nor what is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from reasonrag.errors import InputError
from reasonrag.llm.chat import ChatModel, Sampling
from reasonrag.llm.endpoint import KEY_VARIABLE, MAX_DOWN_S, EndpointModel
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.llm.prices import PRICES_AS_OF, Price


@dataclass(frozen=True, slots=True)
class Limits:
    """How fast a model is asked, and how long it is waited for; see `EndpointModel` for each."""

    concurrency: int
    timeout: float
    rpm: int | None = None
    tpm: int | None = None
    patience: float = MAX_DOWN_S


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """See the module's docstring.

    name: the one its answers go by. price: None where it is not known. addresses: base URLs; none: OPENAI_BASE_URL,
    else OpenAI's. key_variable: where its key comes from. flags: how the flags begin that messages about it name.
    recorded_as: its name in a journal; None where the journal is its own, or it is the teacher of the run. in_process:
    the offline teacher, which needs no address.
    """

    name: str
    sampling: Sampling
    limits: Limits
    price: Price | None = None
    addresses: tuple[str, ...] = ()
    key_variable: str = KEY_VARIABLE
    flags: str = "--"
    recorded_as: str | None = None
    in_process: bool = False

    def elsewhere(self, addresses: Sequence[str], *, key_variable: str) -> ModelSpec:
        """The same at these addresses, if there are any. This one's key, and rate limits given by hand, are for its own
        addresses only."""
        if not addresses:
            return self
        limits = replace(self.limits, rpm=None, tpm=None)
        return replace(self, addresses=tuple(addresses), key_variable=key_variable, limits=limits)

    def open(self, opened: AsyncExitStack) -> ChatModel:
        """The model itself, closed with `opened`. Raises InputError where an address is none, or the key is missing."""
        model = OfflineTeacher(name=self.name) if self.in_process else self._at_endpoint()
        opened.push_async_callback(model.close)
        return model

    def _at_endpoint(self) -> EndpointModel:
        return EndpointModel(
            self.name,
            base_urls=self.addresses,
            concurrency=self.limits.concurrency,
            rpm=self.limits.rpm,
            tpm=self.limits.tpm,
            timeout=self.limits.timeout,
            patience=self.limits.patience,
            flags=self.flags,
            key_variable=self.key_variable,
        )


def check_prices(teacher: ModelSpec, student: ModelSpec | None = None, judge: ModelSpec | None = None) -> None:
    """Raises InputError for a model whose tokens no cap could count."""
    for model, flags, free in (
        (teacher, "--", ""),
        (student, "--value-", "; one at a --value-base-url is free"),
        (judge, "--judge-", ""),
    ):
        if model and model.price is None:
            raise InputError(
                f"--max-cost needs the price of {model.name}, which is not in the table of {PRICES_AS_OF}: "
                f"give {flags}price-in and {flags}price-out, in dollars per million tokens{free}"
            )
