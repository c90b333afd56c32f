"""A limiter that starts again knows what every rank may have spent: from its file, or from the rank's journal."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from reasonrag.errors import InputError
from reasonrag.llm.budget import Amount, Caps
from reasonrag.llm.chat import Completion
from reasonrag.llm.journal import journal_line
from reasonrag.llm.limiter.limiter import Account, Lease, Limiter, Rates, Report
from reasonrag.llm.limiter.state_file import STATE, KeptLimiter, open_limiter

CAPS = Caps(calls=100)


async def accounts(run: Path) -> dict[str, Account]:
    async with open_limiter(run, CAPS, Rates()) as kept:
        return kept.limiter.accounts


async def lease(kept: KeptLimiter, rank: str, *, spent: float = 0, wanted: float = 0) -> Lease:
    report = Report(rank=rank, spent=Amount(spent), held=Amount(spent), wanted=Amount(wanted))
    turn = (await kept.lease(report)).turn
    return await kept.lease(report.model_copy(update={"turn": turn}))


def write_journal(run: Path, rank: str, *answers: Completion, torn: bytes = b"") -> None:
    path = run / "ranks" / rank / "journal.jsonl"
    path.parent.mkdir(parents=True)
    lines = [journal_line("q", [f"{place}"], [each], model=None) for place, each in enumerate(answers)]
    path.write_bytes(b"".join(lines) + torn)


def answer(prompt: int, completion: int) -> Completion:
    return Completion(text="", finish_reason="stop", prompt_tokens=prompt, completion_tokens=completion)


async def test_every_grant_is_in_the_file_before_it_is_given(tmp_path: Path) -> None:
    """The last line of a rank counts; a last line that was cut off was never answered."""
    async with open_limiter(tmp_path, CAPS, Rates()) as kept:
        await lease(kept, "00000", spent=3, wanted=9)
        granted = (await lease(kept, "00000", spent=5, wanted=20)).allowed
        other = (await lease(kept, "00001", wanted=7)).allowed
        content = (tmp_path / STATE).read_bytes()
    (tmp_path / STATE).write_bytes(content + content.splitlines()[-1][:30])
    found = await accounts(tmp_path)
    assert {name: (each.spent.calls, each.allowed) for name, each in found.items()} == {
        "00000": (5, granted),
        "00001": (0, other),
    }


async def test_a_journal_that_says_more_than_the_file_is_believed(tmp_path: Path) -> None:
    """Of a rank that the file does not name, and of one that was at work without this limiter."""
    async with open_limiter(tmp_path, CAPS, Rates()) as kept:
        await lease(kept, "00001", wanted=1)
        await lease(kept, "00002", wanted=20)
    for rank in ("00000", "00001", "00002"):
        write_journal(tmp_path, rank, answer(100, 10), answer(50, 5), torn=b'{"question_id": "q", "ke')
    found = await accounts(tmp_path)
    assert {name: (each.spent[:2], each.allowed.calls) for name, each in found.items()} == {
        "00000": ((2, 165), 2),
        "00001": ((2, 165), 2),
        "00002": ((2, 165), 20),
    }
    assert found["00000"].journaled == {"": (150, 15, 0)}


async def test_the_file_is_written_anew_when_it_has_grown(tmp_path: Path) -> None:
    kept = KeptLimiter(tmp_path / STATE, Limiter(CAPS), time.monotonic, most_bytes=500)
    for spent in range(50):
        await lease(kept, "00000", spent=spent, wanted=spent + 1)
        assert (tmp_path / STATE).stat().st_size < 1_000
    kept.close()
    assert (await accounts(tmp_path))["00000"].spent.calls == 49


async def test_a_line_that_is_none_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / STATE).write_bytes(b'{"rank": "0", "spent": [1, 2, 3], "allowed": [1, 2, 3]}\n{"rank": "../x"}\n')
    with pytest.raises(InputError, match=r"limiter.jsonl, line 2 is not a limiter's"):
        await accounts(tmp_path)


async def test_a_run_has_one_limiter_at_a_time(tmp_path: Path) -> None:
    async with open_limiter(tmp_path, CAPS, Rates()):
        with pytest.raises(InputError, match="running already"):
            await accounts(tmp_path)
    assert await accounts(tmp_path) == {}
