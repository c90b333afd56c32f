"""A Hub of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.hub_server import HubServer, running_hub


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with running_hub() as server:
        yield server
