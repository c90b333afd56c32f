"""Question files as FlashRAG's collection has them: HotpotQA's with the passages that came with the questions."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from reasonrag.data.corpus import Corpus, scan_corpus

DISTRACTORS = 8


def rows_of(questions: Path, corpus: Path, limit: int | None = None) -> list[dict[str, Any]]:
    """The questions of a file; each with its gold passages and others in `metadata.context`, and no name of them."""
    passages = list(Corpus(corpus, scan_corpus(corpus).offsets))
    by_id = {each.id: each for each in passages}
    rows = []
    with questions.open("rb") as lines:
        for number, row in enumerate(map(orjson.loads, islice(lines, limit))):
            others = passages[number * DISTRACTORS : (number + 1) * DISTRACTORS]
            near = [*map(by_id.__getitem__, row["metadata"]["gold_ids"]), *others]
            context = {"title": [each.title for each in near], "sentences": [[each.text] for each in near]}
            metadata = {"type": row["metadata"]["type"], "context": context}
            rows.append(row | {"id": f"train_{number}", "metadata": metadata})
    return rows


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in rows)
