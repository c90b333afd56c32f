"""The journals of a run's shards or copies as one: each answer once, and no two answers to one draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from reasonrag.errors import InputError
from reasonrag.files import checked_lines
from reasonrag.llm.budget import Tokens
from reasonrag.llm.endpoint.prompt_window import PromptWindows
from reasonrag.llm.journal import LONGEST_LINE, parse_line


class JoinedJournals:
    """The lines of several journals of one run, without copies. say: is told of a last line that is left out as cut."""

    def __init__(self, paths: Sequence[Path], say: Callable[[str], None]) -> None:
        self.delivered = Tokens()
        """Everything in the lines that were read."""
        self.windows = PromptWindows()
        """By the same."""
        self._paths, self._say = paths, say

    def lines(self) -> Iterator[bytes]:
        """Raises InputError for a line that is no answer, or another one to a draw. Holds some 200 bytes a draw."""
        seen, said = set[int](), dict[int, int]()
        for path in self._paths:
            for number, line, entry in checked_lines(path, parse_line, self._say, longest=LONGEST_LINE):
                if hash(line) in seen:
                    continue
                seen.add(hash(line))
                self.delivered += Tokens.of(entry.answers.values())
                for key, answer in entry.answers.items():
                    self.windows.add(entry.model, answer)
                    own = hash((answer.text, answer.reasoning, answer.finish_reason))
                    if said.setdefault(hash((entry.question_id, key)), own) != own:
                        raise InputError(
                            f"{path}, line {number} has another answer to a request than a line before it. Remove one "
                            "of them, then merge again"
                        )
                yield line
