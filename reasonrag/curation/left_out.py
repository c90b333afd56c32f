"""How work on a question ends early: with the cause that a file keeps of it. Knows none of the causes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from preference.records import QuestionError

T = TypeVar("T")


@dataclass
class LeftOut(Exception):
    error: QuestionError


def needed(value: T | None, cause: str, message: str) -> T:
    """The value. Raises LeftOut where there is none, or it is false."""
    if not value:
        raise LeftOut(QuestionError(cause=cause, message=message))
    return value
