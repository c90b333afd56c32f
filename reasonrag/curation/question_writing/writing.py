"""`reasonrag corpus questions`: a teacher writes questions from a corpus, and filters keep the sound ones.

Decides how many are written at a time: as many as are missing and some more, until enough are kept or nothing is left
to ask about. Train and held-out questions come from different documents. What a chain or a fault is, is decided in
`chains` and `filters`. Does not know whether a question is worth asking.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson
from pydantic import BaseModel

from preference.export.private_files import write_file, write_json
from preference.export.summary import SUMMARY
from preference.records import QuestionError
from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.parsing import parse_answers, parse_question
from reasonrag.agent.prompting import Prompts, load_prompts, render_reading, render_writing
from reasonrag.concurrency import run_to_end
from reasonrag.curation.left_out import LeftOut, needed
from reasonrag.curation.question_writing.chains import (
    DRAWS,
    MOST_PASSAGES,
    SHORTEST,
    Source,
    chains,
    document_of,
    held_out_documents,
    singles,
)
from reasonrag.curation.question_writing.filters import KeptQuestions, Written, check_by_reading, check_text
from reasonrag.curation.settings import QuestionWritingSettings, WantedQuestionSettings
from reasonrag.data.compressed import plain_corpus
from reasonrag.data.corpus import LONG_PASSAGE_CHARS, Corpus, Passage, scan_corpus
from reasonrag.errors import InputError, ModelError, RetrievalError
from reasonrag.files import file_digest, read_record, writing
from reasonrag.llm.budget import Caps, Tokens
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.expected_usage import ExpectedUsage
from reasonrag.llm.model_spec import LazyModel, ModelSpec, check_prices
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.settings import DEFAULT_TEACHER, BudgetSettings, LimitSettings, ModelSettings
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.rendering import Line, Part, Shown, Table, counted, dollars_or_unknown, next_command, warned
from reasonrag.retrieval.opening import open_retriever
from reasonrag.retrieval.retriever import Retriever
from reasonrag.retrieval.settings import RetrievalSettings
from reasonrag.run.consent import cost_in_words
from reasonrag.run.engine import Asked, Budget, Role, Run, claimed, open_run
from reasonrag.run_config import RunConfig, has_answers, recorded_effort, shown_settings
from reasonrag.settings import resolve
from reasonrag.signatures import public_call

FILTERED = "filtered.jsonl"
_TEACHER = "model"
_MORE = 1.5
"""So many times what is missing is written at a time."""
_GIVEN_UP = 20
"""So many in a row of which none is kept, or all fail, end it."""
_READINGS = 4
"""Of a question by a fresh reader, at most."""
_SHORT_REPLY_TOKENS = 20


class QuestionsSummary(BaseModel, Shown):
    """What `corpus questions` wrote; the content of `summary.json`."""

    out: str
    held_out: str | None
    """None where the corpus has one document, which cannot be divided."""
    folder: str
    """Of the journal, the failures and the filtered questions."""
    corpus: str
    model: str
    kept: dict[str, int] = {}
    """By `single` and `multi-hop`, both files together."""
    wanted: dict[str, int] = {}
    """So many of each were asked for."""
    kept_held_out: int = 0
    filtered: dict[str, int] = {}
    """Left out, by cause (`filters.Cause`)."""
    failed: int = 0
    """Without a reply; the same command asks again."""
    documents: int = 0
    documents_held_out: int = 0
    passages: int = 0
    """Those that questions can be asked about."""
    sha256: dict[str, str] = {}
    """Of the two files of questions."""
    calls: int = 0
    cost_usd: float | None = None
    expected: str = ""
    """The cost, of a dry run."""
    warnings: list[str] = []

    def shown(self) -> Iterator[Part]:
        rows: dict[str, object] = {
            "kept": tuple(f"{kind} {self.kept.get(kind, 0):,} of {many:,}" for kind, many in self.wanted.items()),
            "of them held out": f"{self.kept_held_out:,}, for which {self.documents_held_out:,} of "
            f"{counted(self.documents, 'document')} are held out",
            "left out": self.filtered,
            "failed": self.failed or "",
            "cost": f"{dollars_or_unknown(self.cost_usd)}, {counted(self.calls, 'completion')}",
        }
        of = f"{self.passages:,} in {counted(self.documents, 'document')}, each asked about up to {DRAWS} times"
        rows = {"passages": of, "expected cost": self.expected} if self.expected else rows
        yield from warned(self.warnings)
        yield Table(f"questions from {self.corpus}  writer {self.model}", rows.items())
        if self.expected:
            return
        yield from (Line(f"wrote {each}") for each in (self.out, self.held_out) if each)
        yield Line(f"left out, with causes: {Path(self.folder) / FILTERED}")
        if sum(self.kept.values()) > self.kept_held_out:
            model = ["--model", OFFLINE] if self.model == OFFLINE else []
            data = ("--questions", self.out, "--corpus", self.corpus)
            stem = Path(self.out).stem
            yield next_command("generate", *data, *model, "--run", f"runs/{'own' if stem == 'questions' else stem}")


@public_call(QuestionWritingSettings)
def corpus_questions(
    corpus: str | Path,
    *,
    chat_model: ChatModel | None = None,
    dry_run: bool = False,
    watcher: Watcher | None = None,
    **flags: Any,
) -> QuestionsSummary:
    """Write questions with their answers and gold passages from a corpus: some for training, some held out.

    Raises InputError for a corpus that cannot be read and for files of others in the way; RunStopped where a cap or a
    lost endpoint ended it, KeyboardInterrupt after Ctrl-C: what was answered is kept, and the same call goes on.

    Example:
        >>> made = reasonrag.corpus_questions("corpora/handbook.jsonl", count=2, model="offline")
        >>> sum(made.wanted.values())
        2

    Args:
        corpus: file of a corpus, as `corpus_build` writes it.
        chat_model: the teacher, used instead of the one that the settings would open.
        dry_run: estimate the cost, send no request.
        watcher: is told what happens while it goes on; none: silent.
    """
    settings = resolve(QuestionWritingSettings, "corpus-questions", flags | {"corpus": Path(corpus)})
    return run_to_end(_write(settings, chat_model, watcher or SilentWatcher(), dry_run=dry_run))


def _check_places(wanted: WantedQuestionSettings) -> None:
    """Raises InputError for files in the way that this command did not write, and for places that are the same."""
    out, held_out, folder = wanted.out, wanted.place_of_held_out, wanted.folder
    if not out.suffix:
        raise InputError(f"--out {out} needs a suffix, as in {out}.jsonl: the folder {out} is beside it")
    if held_out.absolute() == out.absolute() or folder.absolute() in held_out.absolute().parents:
        raise InputError(f"--held-out {held_out}: give a file of its own, outside {folder}")
    earlier = read_record(folder / SUMMARY, QuestionsSummary, "Restore it, or choose another --out")
    known = earlier.sha256 if earlier else {}
    for each in (out, held_out):
        if each.exists() and known.get(str(each)) != file_digest(each):
            why = "was changed since it was written" if str(each) in known else "exists and is not of this command"
            raise InputError(f"{each} {why}: not replaced; move it, or choose another --out")


async def _write(
    settings: QuestionWritingSettings, chat_model: ChatModel | None, told: Watcher, *, dry_run: bool
) -> QuestionsSummary:
    wanted = settings.part(WantedQuestionSettings)
    folder = wanted.folder
    _check_places(wanted)
    name = chat_model.name if chat_model else settings.model or DEFAULT_TEACHER
    spec = ModelSpec.of(settings.part(ModelSettings), settings.part(LimitSettings), name)
    check_prices(told.say, spec, given=settings.price, capped=settings.max_cost is not None)
    source, corpus_sha256, passages = _passages(wanted, settings.index_home, told)
    held = held_out_documents(passages, wanted.held_out_share, wanted.seed)
    prompts = load_prompts(settings.prompts)
    groups = _groups(wanted, passages, held)
    async with AsyncExitStack() as opened:
        if dry_run:
            expected = _expected(prompts, (each for group in groups for each in group.next_sources()))
            cost, _ = cost_in_words([(spec, spec.expected(expected))], Caps.of(settings.part(BudgetSettings)), Tokens())
            return _summary(wanted, name, passages, held, groups).model_copy(update={"expected": cost, "warnings": []})
        teacher, begun = LazyModel(spec, opened, told.say, chat_model), has_answers(folder)
        spec = teacher.spec = await spec.settled(None if begun else await teacher(), recorded_effort(folder))
        retriever = await open_retriever(
            settings.part(RetrievalSettings), source, opened, named=True, top_k=settings.top_k, say=told.say
        )
        decides = {name: getattr(settings, name) for name in ("multi_hop", "held_out_share", "top_k", "seed")}
        decides |= {"model": spec.name, "sampling": spec.sampling.shown, "retriever": retriever.identity}
        decides |= {"corpus": corpus_sha256, "prompts": prompts.hash_with("question", "check")}
        config = RunConfig.of(decides, {"settings": shown_settings(settings)})
        work = _Writing(spec, prompts, settings.seed, retriever, settings.top_k)
        opened.enter_context(claimed(folder, config, flag="--out"))
        budget = Budget(Caps.of(settings.part(BudgetSettings)), settings.yes)
        run = await opened.enter_async_context(
            open_run(folder, {_TEACHER: Role(spec, teacher)}, told, budget, recorded_in=folder)
        )
        await _fill(groups, work, run)
        failed, calls = [*work.outcomes.values()].count(None), run.models.spent.calls
        summary = _summary(wanted, name, passages, held, groups).model_copy(
            update={"failed": failed, "calls": calls, "cost_usd": run.models.cost}
        )
        with writing(wanted.out):
            return _write_files(wanted, groups, summary)


def _passages(wanted: WantedQuestionSettings, home: Path, told: Watcher) -> tuple[Path, str, list[Passage]]:
    """The corpus as a plain file, its hash, and its passages, of a large one so many as are looked at."""
    path = plain_corpus(wanted.corpus, home, say=told.say)
    scan = scan_corpus(path, say=told.say)
    rows, all_of_it = list(range(len(scan.offsets))), Corpus(path, scan.offsets)
    if len(rows) > MOST_PASSAGES:
        told.say(f"questions are written from {MOST_PASSAGES:,} of {len(rows):,} passages, drawn by the seed")
        rows = sorted(random.Random(wanted.seed).sample(rows, MOST_PASSAGES))
    found = [each for each in map(all_of_it.__getitem__, rows) if len(each.text) <= LONG_PASSAGE_CHARS]
    if len(found) < len(rows):
        long = counted(len(rows) - len(found), "passage")
        told.say(f"no question is written from {long} of more than {LONG_PASSAGE_CHARS:,} characters")
    return path, scan.sha256, found


# -- what is written, and what is kept -------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What came of a source: a question, unless none could be read, and why it is left out."""

    source: Source
    written: Written | None = None
    error: QuestionError | None = None

    def row(self, model: str) -> dict[str, Any]:
        """A line of the questions; with its cause, of those that were left out."""
        hops, gold = self.source.hops, [each.id for each in self.source.passages]
        about = {"type": "multi-hop" if hops > 1 else "single", "hops": hops, "gold_ids": gold, "written_by": model}
        asked = {"question": self.written.question, "golden_answers": [self.written.answer]} if self.written else {}
        wrong = {"cause": self.error.cause, "detail": self.error.message} if self.error else {}
        return {"id": self.source.id, **asked, "metadata": about, **wrong}


@dataclass
class _Group:
    """The questions of a kind and a side. wanted: so many are to be kept at least."""

    held_out: bool
    kind: Literal["single", "multi-hop"]
    wanted: int
    sources: Iterator[Source]
    kept: list[Outcome] = field(default_factory=list)
    left_out: list[Outcome] = field(default_factory=list)
    in_vain: int = 0

    def next_sources(self) -> list[Source]:
        """To be written next; none once enough are kept, or nothing comes of it any more."""
        missing = self.wanted - len(self.kept)
        if missing <= 0 or self.in_vain >= _GIVEN_UP:
            return []
        return list(islice(self.sources, round(_MORE * missing) + 1))

    def take(self, outcome: Outcome, known: KeptQuestions) -> None:
        """Keep it, or leave it out with its cause."""
        written, gold = outcome.written, outcome.source.passages
        if written and not outcome.error and (same := known.same_as(written, gold)):
            outcome = outcome._replace(error=QuestionError(cause="duplicate", message=f"as {same}"))
        if outcome.error or not written:
            self.left_out.append(outcome)
            self.in_vain += 1
            return
        known.add(outcome.source.id, written, gold)
        self.kept.append(outcome)
        self.in_vain = 0


def _groups(wanted: WantedQuestionSettings, passages: Sequence[Passage], held: set[str]) -> list[_Group]:
    groups, of_held = list[_Group](), round(wanted.count * wanted.held_out_share) if held else 0
    for held_out, count in ((False, wanted.count - of_held), (True, of_held)):
        mine = [each for each in passages if (document_of(each) in held) == held_out]
        several = round(count * wanted.multi_hop)
        groups += [
            _Group(held_out, "single", count - several, singles(mine, held_out=held_out, seed=wanted.seed)),
            _Group(held_out, "multi-hop", several, chains(mine, held_out=held_out, seed=wanted.seed)),
        ]
    return groups


async def _fill(groups: Sequence[_Group], work: _Writing, run: Run) -> None:
    """Write questions until each group has enough, or nothing is left. Raises what `Run.complete` does."""
    known = KeptQuestions()
    while wave := [(group, each) for group in groups for each in group.next_sources()]:
        work.sources = [each for _, each in wave]
        await run.complete(work, work)
        run.budget = run.budget._replace(yes=True)  # agreed to, for all that is still to be written
        for group, source in wave:
            if outcome := work.outcomes.get(source.id):
                group.take(outcome, known)
            else:
                group.in_vain += 1


@dataclass
class _Writing:
    """The teacher's work on some sources; see `reasonrag.run.engine.Work`. outcomes: by id of the question, of all
    that were worked on; None where that failed."""

    spec: ModelSpec
    prompts: Prompts
    seed: int
    retriever: Retriever
    top_k: int
    sources: list[Source] = field(default_factory=list)
    outcomes: dict[str, Outcome | None] = field(default_factory=dict)
    noun: str = "question"

    @property
    def at_once(self) -> int:
        return self.spec.limits.concurrency

    def items(self) -> list[Source]:
        return self.sources

    def question_of(self, item: Source) -> str:
        return item.id

    async def do(self, item: Source, asked: Asked) -> None:
        try:
            self.outcomes[item.id] = await self._outcome(item, asked.models[_TEACHER])
        except (ModelError, RetrievalError) as error:
            asked.failure(error, "question", {"question_id": item.id})
            self.outcomes[item.id] = None

    async def _outcome(self, item: Source, model: ChatModel) -> Outcome:
        """Raises ModelError and RetrievalError."""
        source, written, heard = item, None, dict[tuple[str, ...], list[str]]()
        try:
            source, written = await self._written(item, model)
            several = item.hops == 1 or source.hops > 1
            needed(several, "one_passage_suffices", "the writer names one passage that it rests on")
            check_text(written, source.passages)
            searched = await self.retriever.retrieve(written.question, self.top_k)

            async def read(question: str, passages: Sequence[Passage]) -> list[str]:
                shown = tuple(each.id for each in passages)
                if shown not in heard:  # no draw is asked for twice
                    heard[shown] = await self._read(item, model, question, passages)
                return heard[shown]

            await check_by_reading(written, source.passages, searched, read)
        except LeftOut as left:
            return Outcome(source, written, left.error)
        return Outcome(source, written)

    async def _written(self, item: Source, model: ChatModel) -> tuple[Source, Written]:
        """A question that rests on the passages that its writer names. Raises LeftOut, ModelError."""
        said = await ModelCaller(model, self.prompts, self.spec.sampling, self.seed).judgement(
            item.id,
            render_writing(self.prompts, item.passages),
            item.draw,
            tag="answer",
            wanted=f"the answer, after <question>..</question> and <passages>..</passages>, numbers up to {item.hops}",
            read=partial(parse_question, passages=item.hops),
        )
        question, answer, numbers = needed(said.value, "unreadable", (said.unreadable or "")[:200])
        needed(question, "no_question", "the writer finds none")
        return item.resting_on(numbers), Written(question, answer)

    async def _read(self, item: Source, model: ChatModel, question: str, passages: Sequence[Passage]) -> list[str]:
        """Raises LeftOut, ModelError."""
        sampling = self.spec.likeliest("reader").sampling
        said = await ModelCaller(model, self.prompts, sampling, self.seed).judgement(
            item.id,
            render_reading(self.prompts, question, passages),
            0,
            tag="answers",
            wanted="every right answer on a line of its own, or unknown",
            read=parse_answers,
        )
        needed(said.value is not None, "unreadable", f"of a reader: {(said.unreadable or '')[:200]}")
        return said.value or []

    def described(self, count: int) -> str:
        return f"{counted(count, self.noun)} to write first, and more in place of those that are left out"

    async def expected(self, owed: Iterable[Source], *_: object, **__: object) -> list[ExpectedUsage]:
        return [_expected(self.prompts, owed)]


def _expected(prompts: Prompts, sources: Iterable[Source]) -> ExpectedUsage:
    """At the high end half of the questions are left out, and others are written."""
    asked = [render_writing(prompts, each.passages) for each in sources] * (1 + _READINGS)
    return ExpectedUsage.of_replies(asked, lines=len(asked), shortest=_SHORT_REPLY_TOKENS).times(0.5, 2)


# -- files -----------------------------------------------------------------------------------------------------


def _write_files(
    wanted: WantedQuestionSettings, groups: Sequence[_Group], summary: QuestionsSummary
) -> QuestionsSummary:
    """The summary with what tells later whether a file was changed; it is there before they are."""
    wanted.out.parent.mkdir(parents=True, exist_ok=True)
    kept = {wanted.out: [each for group in groups if not group.held_out for each in group.kept]}
    if summary.held_out:
        kept[wanted.place_of_held_out] = [each for group in groups if group.held_out for each in group.kept]
    left_out = {wanted.folder / FILTERED: [each for group in groups for each in group.left_out]}
    content = {
        path: b"".join(orjson.dumps(each.row(summary.model), option=orjson.OPT_APPEND_NEWLINE) for each in outcomes)
        for path, outcomes in (kept | left_out).items()
    }
    digests = {str(path): hashlib.sha256(content[path]).hexdigest() for path in kept}
    summary = summary.model_copy(update={"sha256": digests})
    write_json(wanted.folder / SUMMARY, summary.model_dump())
    for path, text in content.items():
        write_file(path, text)
    return summary


def _summary(
    wanted: WantedQuestionSettings, model: str, passages: Sequence[Passage], held: set[str], groups: Sequence[_Group]
) -> QuestionsSummary:
    kept, asked_for = Counter[str](), Counter[str]()
    for each in groups:
        kept[each.kind] += len(each.kept)
        asked_for[each.kind] += each.wanted
    left_out, warnings = [each for group in groups for each in group.left_out], list[str]()
    if wanted.held_out_share and not held:
        warnings.append("the corpus is one document, which cannot be divided: no question is held out")
    if model == OFFLINE:
        warnings.append(
            "the writer is offline, which makes a gap in a sentence: for a rehearsal only; how good a writer's "
            "questions are, and how many are kept, only a language model can show"
        )
    if kept.total() < wanted.count:
        warnings.append(
            f"{kept.total():,} of {counted(wanted.count, 'question')}: the corpus has no more to ask about (not "
            f"passages under {SHORTEST} characters, and for several hops those that share a rare name), or too many in "
            "a row were left out or failed; see the causes, and give more documents or another --model"
        )
    return QuestionsSummary(
        out=str(wanted.out),
        held_out=str(wanted.place_of_held_out) if held else None,
        folder=str(wanted.folder),
        corpus=str(wanted.corpus),
        model=model,
        kept=dict(kept),
        wanted=dict(asked_for),
        kept_held_out=sum(len(each.kept) for each in groups if each.held_out),
        filtered=dict(Counter(each.error.cause for each in left_out if each.error).most_common()),
        documents=len(set(map(document_of, passages))),
        passages=sum(len(each.text) >= SHORTEST for each in passages),
        documents_held_out=len(held),
        warnings=warnings,
    )
