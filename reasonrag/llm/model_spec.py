"""The specification of a model: name, addresses, limits, sampling and price.

Decides what a second model shares with the first. Knows neither settings nor what the model is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from reasonrag.errors import InputError
from reasonrag.llm.chat import ChatModel, Sampling
from reasonrag.llm.endpoint.endpoint import KEY_VARIABLE, EndpointModel, Limits
from reasonrag.llm.endpoint.score_endpoint import ScoreEndpoint
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.llm.prices import Price, price_list


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """See the module's docstring.

    name: recorded with its answers. price: None if unknown. addresses: base URLs; none: OPENAI_BASE_URL, else OpenAI's.
        key_variable: the environment variable with its key. flags: prefix of its flags in messages. recorded_as: its
        name in a journal; None if the journal is its own, or it is the run's teacher. in_process: the offline teacher,
        which needs no address. scores: whether it is a critic, which gives numbers. trial_score, trial_tokens: see
        `ScoreEndpoint`.
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
    scores: bool = False
    trial_score: float | None = None
    trial_tokens: int | None = None

    def at_addresses(self, addresses: Sequence[str], *, key_variable: str) -> ModelSpec:
        """The same model at these addresses, if any. The key and manually set rate limits apply to the original
        addresses only."""
        if not addresses:
            return self
        limits = replace(self.limits, rpm=None, tpm=None)
        return replace(self, addresses=tuple(addresses), key_variable=key_variable, limits=limits)

    def open(self, opened: AsyncExitStack, *, say: Callable[[str], None]) -> ChatModel:
        """Open the model; it is closed with `opened`. say: called with messages about its endpoint for the user. Raises
        InputError for a malformed address or a missing key."""
        model = OfflineTeacher(name=self.name) if self.in_process else self._at_endpoint(say)
        opened.push_async_callback(model.close)
        return model

    def _at_endpoint(self, say: Callable[[str], None]) -> EndpointModel:
        model = (ScoreEndpoint if self.scores else EndpointModel)(
            self.name,
            self.limits,
            sampling=self.sampling,
            base_urls=self.addresses,
            flags=self.flags,
            key_variable=self.key_variable,
        )
        model.say = say
        if isinstance(model, ScoreEndpoint):
            model.trial_score, model.trial_tokens = self.trial_score, self.trial_tokens
        return model


def check_prices(
    say: Callable[[str], None],
    teacher: ModelSpec,
    student: ModelSpec | None = None,
    judge: ModelSpec | None = None,
    *,
    capped: bool,
) -> None:
    """Say of which models no price is known. Raises InputError where --max-cost has to count it (capped)."""
    for model, flags in (teacher, "--"), (student, "--value-"), (judge, "--judge-"):
        if model is None or model.price is not None:
            continue
        given = f"give {flags}price-in and {flags}price-out, in dollars per million tokens (0 for a server of your own)"
        if capped:
            raise InputError(f"--max-cost needs the price of {model.name}, which {price_list()} does not have: {given}")
        say(f"no price is known for {model.name}, so costs are not shown and --max-cost cannot be used; {given}")
