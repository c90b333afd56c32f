"""A Ray cluster: joined or started, left as it was found, and named where it cannot be had."""

from __future__ import annotations

import sys

import pytest

from reasonrag.errors import InputError
from reasonrag.scale.ray_cluster import OBJECT_STORE_BYTES, ray_cluster


@pytest.fixture(autouse=True)
def none_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_a_cluster_that_is_joined_is_left_running(ray_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By RAY_ADDRESS, as in a job that Ray runs. A connection of the calling program is used and kept: a notebook goes
    on with it."""
    monkeypatch.setenv("RAY_ADDRESS", ray_address)
    with ray_cluster(workers=2) as ray:
        assert ray.cluster_resources()["CPU"] == 4
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
        with ray_cluster(workers=2) as inner:
            assert inner.cluster_resources()["CPU"] == 4
        assert ray.is_initialized()
    assert not ray.is_initialized()


@pytest.mark.usefixtures("ray_address")  # one at a time: a second cluster needs another gigabyte
def test_without_an_address_one_is_started_and_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for the workers, and little shared memory."""
    monkeypatch.delenv("RAY_ADDRESS")
    with ray_cluster(workers=5) as ray:
        assert ray.cluster_resources()["CPU"] >= 5
        assert ray.cluster_resources()["object_store_memory"] == OBJECT_STORE_BYTES
    assert not ray.is_initialized()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "nowhere.invalid:6379"])
def test_a_cluster_that_is_not_there_is_named_at_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would wait for minutes, and then end the program."""
    pytest.importorskip("ray", reason="the ray extra is not installed")
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(InputError, match=rf"Ray cluster {address} cannot be reached: .*Check RAY_ADDRESS"):  # noqa: SIM117
        with ray_cluster(workers=1):
            pass


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is imported where it is used."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(InputError, match=r"needs the ray extra: pip install 'reasonrag\[ray\]'"),
        ray_cluster(workers=1),
    ):
        pass
