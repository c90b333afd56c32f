"""The specification of a model: name, addresses, limits, sampling and price.

Decides what a second model shares with the first. Knows neither settings nor what the model is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from reasonrag.errors import InputError
from reasonrag.llm.chat import ChatModel, Sampling
from reasonrag.llm.endpoint.endpoint import KEY_VARIABLE, EndpointModel, Limits
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.llm.prices import PRICES_AS_OF, Price


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """See the module's docstring.

    name: recorded with its answers. price: None if unknown. addresses: base URLs; none: OPENAI_BASE_URL, else OpenAI's.
        key_variable: the environment variable with its key. flags: prefix of its flags in messages. recorded_as: its
        name in a journal; None if the journal is its own, or it is the run's teacher. in_process: the offline teacher,
        which needs no address.
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

    def at_addresses(self, addresses: Sequence[str], *, key_variable: str) -> ModelSpec:
        """The same model at these addresses, if any. The key and manually set rate limits apply to the original
        addresses only."""
        if not addresses:
            return self
        limits = replace(self.limits, rpm=None, tpm=None)
        return replace(self, addresses=tuple(addresses), key_variable=key_variable, limits=limits)

    def open(self, opened: AsyncExitStack) -> ChatModel:
        """Open the model; it is closed with `opened`. Raises InputError for a malformed address or a missing key."""
        model = OfflineTeacher(name=self.name) if self.in_process else self._at_endpoint()
        opened.push_async_callback(model.close)
        return model

    def _at_endpoint(self) -> EndpointModel:
        return EndpointModel(
            self.name,
            self.limits,
            sampling=self.sampling,
            base_urls=self.addresses,
            flags=self.flags,
            key_variable=self.key_variable,
        )


def check_prices(teacher: ModelSpec, student: ModelSpec | None = None, judge: ModelSpec | None = None) -> None:
    """Raises InputError for a model without a price, which --max-cost could not count."""
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
