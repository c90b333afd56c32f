"""The models of a session, behind one journal and one set of caps: begun, checked, stopped and drained together.

Knows neither runs nor trees, nor what the models are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reasonrag.errors import RunStopped
from reasonrag.llm.budget import Caps, Ledger, Tokens
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.critic import ScoreEndpoint
from reasonrag.llm.endpoint.endpoint import CallFailure, EndpointModel
from reasonrag.llm.journal import Journal, JournaledModel
from reasonrag.llm.model_spec import ModelSpec


@dataclass(frozen=True)
class Models:
    """By what they are for ("model", "judge", "critic", ..). The first one is the main model."""

    by_role: dict[str, JournaledModel]

    @classmethod
    def journaled(cls, journal: Journal, caps: Caps, roles: Mapping[str, tuple[ModelSpec, ChatModel | None]]) -> Models:
        """Models behind a journal. Each comes with the model that answers what the journal lacks; None: only the
        journal answers."""
        found, ledger = dict[str, JournaledModel](), None
        for role, (spec, inner) in roles.items():
            spent = journal.delivered_by[spec.recorded_as]
            ledger = ledger.beside(spec.price, spent) if ledger else Ledger(spec.price, caps, spent=spent)
            name = spec.recorded_as or spec.name
            found[role] = JournaledModel(inner, journal, name=name, ledger=ledger, recorded_as=spec.recorded_as)
        return cls(found)

    @property
    def main(self) -> JournaledModel:
        return self.all[0]

    @property
    def all(self) -> tuple[JournaledModel, ...]:
        return tuple(self.by_role.values())

    @property
    def endpoints(self) -> list[EndpointModel]:
        """Of those that are asked over HTTP."""
        return [each.inner for each in self.all if isinstance(each.inner, EndpointModel)]

    def begin(self, *, on_failure: Callable[[CallFailure], None], say: Callable[[str], None]) -> None:
        """Reset for a new session. on_failure: called with every failed attempt of a request. say: called with messages
        about an endpoint for the user."""
        for each in self.all:
            if isinstance(endpoint := each.inner, EndpointModel):
                endpoint.begin()
                endpoint.on_failure, endpoint.say = on_failure, say
                each.on_news = endpoint.tell

    async def check(self) -> None:
        """Raises InputError if one of them is unusable."""
        for each in self.all:
            await each.check()
            if isinstance(each.inner, EndpointModel):
                each.ledger.counts_bytes |= each.inner.counts_bytes

    def stop(self, reason: RunStopped) -> None:
        """Send no more requests; `drain` awaits those in flight."""
        for each in self.all:
            each.stop(reason)
            if isinstance(each.inner, EndpointModel | ScoreEndpoint):
                each.inner.stop(reason)

    async def drain(self) -> None:
        """Wait until every answer in flight is on disk."""
        for each in self.all:
            await each.drain()

    # -- state ----------------------------------------------------------------------

    @property
    def stopped(self) -> RunStopped | None:
        """Why one of the models sends no more requests; None if all do."""
        reasons = [each.stopped for each in self.all] + [each.stopped for each in self.endpoints]
        return next((each for each in reasons if each is not None), None)

    @property
    def lessons(self) -> dict[str, list[str]]:
        """By name of the model, what its endpoints refused in this session, and from which lengths they cut prompts. A
        model that was not checked is left out."""
        return {
            each.name: each.inner.refused + each.lessons
            for each in self.all
            if isinstance(each.inner, EndpointModel) and each.inner.checked
        }

    @property
    def spent(self) -> Tokens:
        """Tokens delivered by all of them, in all sessions."""
        return sum((each.ledger.spent for each in self.all), start=Tokens())

    @property
    def cost(self) -> float | None:
        """Dollars, in all sessions; None if one has no price."""
        return self.main.ledger.cost

    @property
    def cached_calls(self) -> int:
        """Draws answered by the journal in this session."""
        return sum(each.cached_calls for each in self.all)

    @property
    def in_flight(self) -> int:
        """Requests sent and not yet answered."""
        return sum(
            each.inner.in_flight if isinstance(each.inner, EndpointModel) else each.in_flight for each in self.all
        )

    @property
    def waiting_for(self) -> str:
        """Why no request is sent; empty while requests go out."""
        if reasons := [endpoint.waiting_for for endpoint in self.endpoints if endpoint.waiting_for]:
            return "; ".join(reasons)
        return self.main.ledger.waiting_for
