"""The habits of poor teachers: repeating the question, misreading, guessing, searching instead of answering."""

from __future__ import annotations

from collections import Counter

from reasonrag.llm.extraction.answer_spans import (
    closeness,
    compared,
    passage_sentences,
    spans,
    two_of,
    wants_verdict,
    with_title,
)
from reasonrag.llm.extraction.parsed_prompt import ParsedPrompt
from reasonrag.llm.extraction.words import (
    STOP_WORDS,
    WORD,
    Proposal,
    best_of_each,
    names,
    raised,
    sentences,
    share,
    stems,
)


def early_answers(prompt: ParsedPrompt) -> list[Proposal]:
    """The more was read and the fewer leads are left, the likelier an answer."""
    searched, found = len(prompt.said("query")), len(prompt.evidence)
    return raised(answers(prompt), -2.2 + 1.1 * found + 0.35 * max(0, searched - found))


def quotes(prompt: ParsedPrompt) -> list[Proposal]:
    """Sentences of the passages, by overlap with the latest query and the question."""
    query = (prompt.said("query") or [prompt.question])[-1]
    wanted, context = stems(query), stems(prompt.question)
    options, places = [], Counter[int]()
    for rank, title, sentence in passage_sentences(prompt):
        position, places[rank] = places[rank], places[rank] + 1
        said = stems(sentence)
        overlap = 3.5 * share(wanted, said) + 1.5 * share(context, said)
        logit = overlap + 2.5 * share(stems(title), wanted) - 0.3 * rank - 0.1 * position
        options.append(Proposal(with_title(sentence, title), logit))
    return options


def queries(prompt: ParsedPrompt) -> list[Proposal]:
    """Possible next queries: the question, its names, and names from the evidence."""
    asked = dict.fromkeys(query.casefold() for query in prompt.said("query"))
    named = names(prompt.question)
    rest = " ".join(
        word for word in WORD.findall(prompt.question) if word.casefold() not in STOP_WORDS and not word[0].isupper()
    )
    options = [Proposal(prompt.question.rstrip("?"), 1.4)]
    options += [Proposal(name, 1.0) for name in named]
    options += [Proposal(f"{name} {rest}".strip(), 0.8) for name in named]
    known = " ".join(named).casefold()
    read = " ".join(asked)
    for age, evidence in enumerate(reversed(prompt.evidence)):
        for name in names(evidence):
            if name.casefold() not in known and name.casefold() not in read:
                options += [Proposal(name, 1.8 - 0.5 * age), Proposal(f"{name} {rest}".strip(), 1.2 - 0.5 * age)]
    return best_of_each(option for option in options if option.text.casefold() not in asked) or [
        Proposal(prompt.question, -2.0)
    ]


def answers(prompt: ParsedPrompt) -> list[Proposal]:
    """Possible answers: yes or no, one of the compared things, or a span of the evidence."""
    question = prompt.question
    if wants_verdict(question):
        return _verdicts(prompt)
    if choice := two_of(question):
        return compared(prompt, choice)
    asked = stems(question)
    options: list[Proposal] = []
    for age, evidence in enumerate(reversed(prompt.evidence)):
        for sentence in sentences(evidence):
            support = 2.0 * share(asked, stems(sentence)) - 0.4 * age
            options += [
                Proposal(span, support + fit + closeness(span, sentence, asked))
                for span, fit in spans(sentence, question)
                if not stems(span) <= asked
            ]
    guesses = [Proposal(name, -1.0) for name in names(question)] or [Proposal("unknown", -1.0)]
    return best_of_each(options) or guesses


def _verdicts(prompt: ParsedPrompt) -> list[Proposal]:
    """Yes if the things in question share a telling word in the evidence, else no; unsure without evidence."""
    evidence = prompt.evidence
    if len(evidence) < 2:
        return [Proposal("yes", 0.0), Proposal("no", 0.0)]
    known = stems(prompt.question)
    shared = (stems(evidence[-1]) & stems(evidence[-2])) - known
    lean = 0.8 if shared else -0.8
    return [Proposal("yes", lean), Proposal("no", -lean)]
