"""`reasonrag review`, end to end: in a terminal, from a pipe, killed, gone on with, and shown hostile text."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

import reasonrag as package
from preference.review_statistics import ReviewPair, read_pairs
from reasonrag.curation.review import reviewer_name
from reasonrag.curation.review_screen import MAX_COMPARED_WORDS, mark_differences, parse_prompt_parts, truncate
from reasonrag.errors import InputError
from tests.helpers.command_line import Reasonrag
from tests.helpers.processes import Command, finished

pytestmark = pytest.mark.slow

HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07[bold red]loud[/bold red] [link=file:///etc/passwd]x[/link] :skull: "
    "\u202edrow\u2066 NUL\x00 back\x08\x08 \x9b31m cr\rover \ud800 zero\u200bwidth"
)
PROMPT = "\r\n> "
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
WAITS_S = 60.0


def row(number: int, **fields: Any) -> dict[str, Any]:
    usual = {
        "instruction": f"Decide on the next step of {number}.",
        "input": f"Question: Who wrote book {number}?\nPrevious Thoughts: Nothing is known yet.",
        "chosen": f"So the next query is <query>author of book {number}</query>",
        "rejected": f"So the next query is <query>price of book {number}</query>",
        "chosen_action_type": "Query Generation",
        "rejected_action_type": "Query Generation",
        "layer": 1,
    }
    return usual | fields


def our_row(number: int, **fields: Any) -> dict[str, Any]:
    ours = {
        "pair_id": f"pairname{number:08x}",
        "state_id": f"statename{number}",
        "question_id": f"questionname{number}",
        "golden_answers": [f"Golden Author {number}"],
        "label": "labelname",
        "chosen_reward": 0.8125,
        "rejected_reward": 0.1875,
        "margin": 0.625,
        "confidence": 0.9375,
        "tags": ["style_only"],
        "recipe": "recipename",
        "teacher": "teachername",
    }
    return row(number) | ours | fields


@pytest.fixture
def data_set(tmp_path: Path) -> Callable[..., Path]:
    """A directory with these rows."""

    def make(*rows: Any) -> Path:
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        (folder / "RAG_ProGuide.json").write_text(json.dumps(list(rows)))
        return folder

    return make


def piped(folder: Path, keys: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """The command with these lines on its stdin."""
    return finished(*review(folder), *flags, stdin=keys.encode())


def review(folder: Path) -> list[object]:
    return ["review", folder, "--reviewer", "me"]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "review" / "me.jsonl").read_bytes().splitlines()]


def verdicts(folder: Path) -> list[str]:
    return [line["verdict"] for line in lines(folder)]


def report(folder: Path) -> dict[str, Any]:
    done = finished(*review(folder), "--report", "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found == json.loads((folder / "review" / "report.json").read_text())
    return found


class Terminal:
    """A command in a pseudo-terminal, with somebody in front of it."""

    def __init__(self, start: Callable[[int], Command | subprocess.Popen[bytes]], *, columns: int) -> None:
        """start: starts the command in the terminal with this descriptor."""
        self.screen = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._descriptor, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.process = start(slave)
        os.close(slave)

    def press(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def shows(self, text: str) -> str:
        """Wait until a text stands on the screen since the last time; what stood there up to it."""
        end = time.monotonic() + WAITS_S
        while text not in self.screen:
            assert self._more(end), f"{text!r} never came; there is {self.screen!r}"
        before, _, self.screen = self.screen.partition(text)
        return before

    def ends(self) -> tuple[int, str]:
        """Exit status, and what was still to be read."""
        end = time.monotonic() + WAITS_S
        while self._more(end):
            pass
        return self.process.wait(), self.screen

    def _more(self, end: float) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, end - time.monotonic()))
        try:
            came = os.read(self._descriptor, 1 << 16) if ready else b""
        except OSError:  # Linux says so when the other side is closed
            came = b""
        self.screen = COLOUR.sub("", self.screen + self._decoder.decode(came))  # one may come in two pieces
        return bool(came)

    def close(self) -> None:
        os.close(self._descriptor)


@contextmanager
def terminal(folder: Path, *flags: str, columns: int = 80) -> Iterator[Terminal]:
    alone = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with ExitStack() as stack:

        def start(descriptor: int) -> Command:
            return stack.enter_context(Command(*review(folder), *flags, terminal=descriptor, environment=alone))

        opened = Terminal(start, columns=columns)
        stack.callback(opened.close)
        yield opened


# -- in a terminal ---------------------------------------------------------------------------------------------


def test_in_a_terminal_single_keys_judge(data_set: Callable[..., Path]) -> None:
    """A note before the verdict, an undo, a quit; each is on disk at once."""
    folder = data_set(*(our_row(n) for n in range(4)))
    with terminal(folder) as seen:
        seen.shows("pair 1 of 4")
        seen.shows(PROMPT)
        seen.press("a")
        seen.shows("pair 2 of 4")
        assert verdicts(folder) == ["a"]
        seen.shows(PROMPT)
        seen.press("n")
        seen.shows("note: ")
        seen.press("two errors\n")
        seen.shows("note: two errors")
        seen.shows(PROMPT)
        seen.press("t")
        seen.shows("pair 3 of 4")
        seen.shows(PROMPT)
        seen.press("u")
        seen.shows("judgement withdrawn")
        assert "note: two errors" in seen.shows(PROMPT)
        seen.press("b")
        seen.shows("pair 3 of 4")
        seen.shows(PROMPT)
        seen.press("q")
        status, rest = seen.ends()
    assert status == 0
    assert "review by me" in rest
    assert verdicts(folder) == ["a", "tie", "withdrawn", "b"]
    assert [line["note"] for line in lines(folder)] == ["", "two errors", "", "two errors"]
    assert report(folder)["reviewers"][0]["judged"] == 2


def test_arrows_pasted_text_and_unknown_keys_judge_nothing(data_set: Callable[..., Path]) -> None:
    """An arrow ends with the letter A or B; a pasted word may hold both."""
    folder = data_set(our_row(1), our_row(2))
    with terminal(folder) as seen:
        seen.shows(PROMPT)
        for keys in ("\x1b[A", "\x1b[B", "baba", "\n", "ä"):
            seen.press(keys)
            time.sleep(0.1)
        seen.shows("unknown key 'ä'")
        seen.shows(PROMPT)
        seen.press("\x04")
        assert seen.ends()[0] == 0
    assert lines(folder) == []


def test_a_key_that_is_held_down_judges_one_pair(data_set: Callable[..., Path]) -> None:
    """What arrives before the next pair can be read is not meant for it."""
    folder = data_set(our_row(1), our_row(2), our_row(3))
    with terminal(folder) as seen:
        seen.shows(PROMPT)
        seen.press("a")
        seen.shows("pair 2 of 3")
        seen.press("a")
        seen.shows(PROMPT)
        seen.press("q")
        assert seen.ends()[0] == 0
    assert verdicts(folder) == ["a"]


def test_ctrl_c_keeps_everything(data_set: Callable[..., Path]) -> None:
    """Status 130, and the command that goes on."""
    folder = data_set(our_row(1), our_row(2))
    with terminal(folder, columns=200) as seen:
        seen.shows(PROMPT)
        seen.press("b")
        seen.shows("pair 2 of 2")
        seen.shows(PROMPT)
        seen.press("\x03")
        status, rest = seen.ends()
    assert status == 130
    assert f"continue with: reasonrag review {folder} --reviewer me" in rest
    assert verdicts(folder) == ["b"]


def test_killed_at_any_moment_it_goes_on_where_it_was(data_set: Callable[..., Path]) -> None:
    """Not one judgement is asked for twice."""
    folder = data_set(*(our_row(n) for n in range(3)))
    with terminal(folder) as seen:
        first = seen.shows(PROMPT)
        seen.press("a")
        seen.shows("pair 2 of 3")
        seen.process.kill()
        assert seen.ends()[0] == -signal.SIGKILL
    again = piped(folder, "b\n")
    assert "1 already judged" in again.stderr
    assert "pair 2 of 3" in again.stderr
    assert "pair 1 of 3" in first
    assert "pair 1 of 3" not in again.stderr
    assert verdicts(folder) == ["a", "b"]
    assert len({line["pair"] for line in lines(folder)}) == 2


def test_the_terminal_is_left_as_it_was(data_set: Callable[..., Path]) -> None:
    """Somebody who quits sees again what they type."""
    folder = data_set(our_row(1))
    script = 'stty -a > before; "$@" ; stty -a > after; cmp before after && echo the same'
    words = ["/bin/sh", "-c", script, "sh", sys.executable, "-m", "reasonrag", *map(str, review(folder))]

    def start(descriptor: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(words, stdin=descriptor, stdout=descriptor, stderr=descriptor, start_new_session=True)

    opened = Terminal(start, columns=80)
    try:
        opened.shows(PROMPT)
        opened.press("q")
        assert "the same" in opened.ends()[1]
    finally:
        opened.close()


@pytest.mark.parametrize("columns", [30, 44, 80, 200])
def test_it_fits_narrow_and_wide_terminals(data_set: Callable[..., Path], columns: int) -> None:
    """No line is wider than the terminal, nor than can be read."""
    words = "some words that go on for a while, and " * 30
    folder = data_set(
        our_row(1, input=f"Question: Who? {words}\nPrevious Thoughts: {words}", chosen=words, rejected="no")
    )
    with terminal(folder, columns=columns) as seen:
        seen.shows("pair 1 of 1")
        shown = seen.shows(PROMPT)
    assert [line for line in shown.splitlines() if len(line) > min(columns, 100)] == []


# -- from a pipe -----------------------------------------------------------------------------------------------


def test_lines_on_stdin_judge(data_set: Callable[..., Path]) -> None:
    """A key or its word a line; a note behind its key, or on the next line; the report at the end."""
    folder = data_set(*(our_row(n) for n in range(5)))
    done = piped(folder, "A\nn odd one\nb\nn\nwhy\n\ntie\nskip\nundo\nb\nfoo\n a \n")
    assert done.returncode == 0
    assert verdicts(folder) == ["a", "b", "tie", "skip", "withdrawn", "b", "a"]
    assert [line["note"] for line in lines(folder)] == ["", "odd one", "why", "", "", "", ""]
    assert "unknown key 'foo'" in done.stderr
    assert "all 5 pairs of the sample are judged" in done.stderr
    assert "review by me" in done.stdout
    assert "pair 1 of 5" not in done.stdout


def test_the_end_of_stdin_is_a_quit(data_set: Callable[..., Path]) -> None:
    """Also before the first key, and in the middle of a note."""
    folder = data_set(our_row(1))
    done = piped(folder, "")
    assert (done.returncode, done.stdout.split(";")[0]) == (0, "no pair has been judged yet")
    assert piped(folder, "n\n").returncode == 0
    assert lines(folder) == []


def test_json_is_alone_on_stdout(data_set: Callable[..., Path]) -> None:
    """The screen is on stderr."""
    found = json.loads(piped(data_set(our_row(1), our_row(2)), "a\nb\n", "--json").stdout)
    assert found["reviewers"][0]["judged"] == 2
    assert found["schema_version"] == "reasonrag.review_report/1"


def test_the_report_agrees_with_who_reads_the_labels(data_set: Callable[..., Path]) -> None:
    """Somebody who knows which is which: all alike, kappa 1; in the python call as in the command."""
    folder = data_set(*(our_row(n) for n in range(20)))
    pairs = {pair.facts.key: pair for pair in read_pairs(folder)}
    keys = "".join(f"{'ab'[pair.sides(0).index(pair.chosen)]}\n" for pair in _in_order(folder, pairs))
    done = piped(folder, keys)
    [found] = [each for each in package.review_report(folder).reviewers if each.reviewer == "me"]
    assert (found.agreement.confirmed.share, found.kappa.kappa, found.disagreements) == (1.0, 1.0, [])
    shown = " ".join(done.stdout.replace("│", " ").split())
    assert "agreement with labels 20 right, 0 wrong, 0 ties: 1.00 (90 % CI 0.88 to 1.00) of 20" in shown
    assert report(folder)["reviewers"][0]["judged"] == 20


def test_what_is_out_of_line_is_said(data_set: Callable[..., Path]) -> None:
    """A reviewer who always chooses A: the side bias, and labels that seem overconfident. Of three pairs, nothing."""
    folder = data_set(*(our_row(n) for n in range(30)))
    few = " ".join(piped(folder, "a\n" * 3).stdout.split())
    many = " ".join(piped(folder, "a\n" * 27).stdout.split())
    for remark in ("biased", "overconfident"):
        assert remark not in few
        assert remark in many


def _in_order(folder: Path, pairs: dict[str, ReviewPair]) -> list[ReviewPair]:
    """The pairs as they are shown: what a run of skips by another reviewer recorded."""
    assert piped(folder, "s\n" * len(pairs), "--reviewer", "scout").returncode == 0
    recorded = (folder / "review" / "scout.jsonl").read_bytes().splitlines()
    return [pairs[json.loads(line)["pair"]] for line in recorded]


def test_a_larger_sample_asks_only_for_what_is_new(data_set: Callable[..., Path]) -> None:
    """The smaller one is its beginning."""
    folder = data_set(*(our_row(n) for n in range(9)))
    piped(folder, "a\n" * 3, "--pairs", "3")
    more = piped(folder, "b\n" * 9, "--pairs", "5")
    assert "5 of 9 pairs, 3 already judged" in more.stderr
    assert verdicts(folder) == ["a", "a", "a", "b", "b"]


def test_undo_reaches_back_into_earlier_sessions(data_set: Callable[..., Path]) -> None:
    """And stops where nothing is left."""
    folder = data_set(our_row(1), our_row(2))
    piped(folder, "a\n")
    done = piped(folder, "u\nu\nt\n")
    assert "there is nothing to undo" in done.stderr
    assert verdicts(folder) == ["a", "withdrawn", "tie"]


def test_a_torn_last_line_is_mended(data_set: Callable[..., Path]) -> None:
    """Its pair is shown again; a line that is whole but for its end is kept."""
    folder = data_set(our_row(1), our_row(2))
    piped(folder, "a\nb\n")
    path = folder / "review" / "me.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert "2 already judged" in piped(folder, "").stderr
    assert path.read_bytes() == whole
    path.write_bytes(whole[:-9])
    assert report(folder)["reviewers"][0]["judged"] == 1
    again = piped(folder, "tie\n")
    assert "was incomplete and has been removed" in " ".join(again.stderr.split())
    assert verdicts(folder) == ["a", "tie"]


def test_a_changed_data_set_loses_no_judgement(data_set: Callable[..., Path]) -> None:
    """What is not there any more is counted, and said."""
    folder = data_set(our_row(1), our_row(2))
    piped(folder, "a\nb\n")
    data_set(our_row(2), our_row(3))
    done = piped(folder, "")
    assert "2 of 2 pairs, 1 already judged" in done.stderr
    assert "1 judgement" in done.stdout
    assert len(lines(folder)) == 2


# -- blindness -------------------------------------------------------------------------------------------------


def test_nothing_of_the_label_stands_on_the_screen(data_set: Callable[..., Path]) -> None:
    """No name, reward, margin, confidence, tag or golden answer, whatever is asked for before the verdict."""
    done = piped(data_set(our_row(1), our_row(2)), "w\ni\ng\n?\nn x\nu\nq\n", "--json")
    assert "author of book" in done.stderr
    assert "Decide on the next step" in done.stderr
    for secret in (
        *("pairname", "statename", "questionname", "labelname", "recipename", "teachername", "style_only", "Golden"),
        *("chosen", "rejected", "Generation", "0.8125", "0.1875", "0.625", "0.9375", "reward", "margin", "confidence"),
    ):
        assert secret not in done.stderr


def test_the_screen_is_the_same_whichever_side_is_preferred(data_set: Callable[..., Path]) -> None:
    """All that a reviewer sees before judging, with the labels as they are and exchanged."""
    shown = []
    for first, second in (("chosen", "rejected"), ("rejected", "chosen")):
        rows = [our_row(n, chosen=our_row(n)[first], rejected=our_row(n)[second]) for n in range(6)]
        shown.append(piped(data_set(*rows), "w\ni\nq\n").stderr)
    assert shown[0] == shown[1]


def test_golden_answers_are_shown_when_they_can_tell_nothing_any_more(data_set: Callable[..., Path]) -> None:
    """After the verdict, once no other pair of the question is left."""
    other_step = {"chosen": "So the answer is <answer>Ann</answer>", "rejected": "So the answer is <answer>Bo</answer>"}
    folder = data_set(our_row(1), our_row(1, **other_step), our_row(2))
    done = piped(folder, "g\n" + "s\ng\n" * 3)
    said = [line for line in done.stderr.splitlines() if "Golden" in line or "not yet" in line or "judge one" in line]
    assert said[0] == "gold answers are shown for the pair judged last; judge one first"
    assert said.count("not yet: another pair of that question is still unjudged") == 1
    assert [line.strip() for line in said if "Golden" in line] in (["Golden Author 1"], ["Golden Author 2"])


# -- what is shown ---------------------------------------------------------------------------------------------


def test_hostile_text_is_shown_and_does_nothing(data_set: Callable[..., Path]) -> None:
    """Not in the question, the thoughts, a passage, a reply, the instructions, a golden answer or a name."""
    reference = f"Wikipedia Title: {HOSTILE}\n{HOSTILE}\n\n"
    state = f"Question: {HOSTILE}\nPrevious Thoughts: {HOSTILE}. Reference: <reference>{reference}</reference>"
    texts = {"instruction": HOSTILE, "input": state, "chosen": HOSTILE + " yes", "rejected": HOSTILE + " no"}
    folder = data_set(our_row(1, pair_id=HOSTILE, golden_answers=[HOSTILE], chosen_action_type=HOSTILE, **texts))
    done = finished(*review(folder), stdin=b"w\ni\nn \x1b[31m \xff\nb\n")
    assert done.returncode == 0
    for text in (done.stdout, done.stderr):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202e\u2066]", text)
    assert "␛[2J␛]0;owned␇[bold red]loud[/bold red]" in done.stderr
    assert "⟨U+202E⟩drow⟨U+2066⟩" in done.stderr
    assert lines(folder)[0]["note"] == "␛[31m �"
    assert piped(folder, "u\ng\nb\ng\n").returncode == 0


def test_a_long_pair_is_folded_until_it_is_asked_for_whole(data_set: Callable[..., Path]) -> None:
    """The ends of a reply stay: the answer stands there."""
    passage = "A sentence of a passage. " * 200 + "The last of it."
    reply = "I think, and think. " * 400 + "So the answer is <answer>x</answer>"
    reference = f". Reference: <reference>Wikipedia Title: T\n{passage}\n\n</reference>"
    folder = data_set(our_row(1, input=our_row(1)["input"] + reference, chosen=reply, rejected="short"))
    seen, whole = piped(folder, "w\n").stderr.split("pair 1 of 1")[1:]
    assert "The last of it." not in seen
    assert "more characters: w" in seen
    assert "<answer>x</answer>" in seen
    assert "The last of it." in whole
    assert "more characters" not in whole


def test_words_that_differ_are_marked_alike_on_both_sides() -> None:
    """The marks favour none of the two; all different or very long, nothing is marked."""
    one, other = mark_differences("He was born in Rome in 1901.", "He was born in Paris in 1901.")
    assert [(span.start, span.end) for span in one.spans] == [(15, 19)]
    assert [(span.start, span.end) for span in other.spans] == [(15, 20)]
    assert {span.style for span in one.spans} == {span.style for span in other.spans}
    assert not mark_differences("one two three", "four five six")[0].spans
    assert not mark_differences("x " * 5000, "x " * 5000 + "y")[0].spans


def test_a_state_is_taken_apart_by_the_layout_of_its_prompt() -> None:
    """Question, thoughts, passages; any other text is shown as it is."""
    full = parse_prompt_parts(
        "Question: Q?\nPrevious Thoughts: T <query>q</query>. Reference: <reference>Wikipedia Title: A\na\n\n"
        "Wikipedia Title: B\nb\nc\n\n</reference>"
    )
    assert (full.question, full.thoughts) == ("Q?", "T <query>q</query>")
    assert full.passages == (("A", "a"), ("B", "b\nc"))
    assert parse_prompt_parts("Question: Q?").passages == ()
    assert parse_prompt_parts("Question: Q?\nPrevious Thoughts: T. Reference: <reference></reference>").has_passages
    assert parse_prompt_parts("Anything\nelse").question == "Anything\nelse"


def test_a_fold_says_how_much_it_hides() -> None:
    """And is not made for a few characters."""
    text = "word " * 100
    start, hidden, end = re.split(
        r" \[\.\. (\d+) more characters: w \.\.\] ", truncate(Text(text), 100, keep_end=0.2).plain
    )
    assert text.startswith(start)
    assert text.endswith(end)
    assert len(start) + int(hidden) + len(end) == len(text)
    assert (len(start), len(end)) == (pytest.approx(80, abs=6), 20)
    assert truncate(Text("x" * 110), 100).plain == "x" * 110


# -- bad input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--pairs", "0"], "--pairs"),
        (["--seed", "-1"], "--seed"),
        (["--reviewer", "../me"], "--reviewer '../me' cannot name a file"),
        (["--reviewer", ""], "cannot name a file"),
        (["--reviewer", ".me"], "cannot name a file"),
        (["--reviewer", "a/b"], "cannot name a file"),
        (["--reviewer", "x" * 65], "cannot name a file"),
    ],
)
def test_wrong_flags_are_refused(
    reasonrag: Reasonrag, data_set: Callable[..., Path], flags: list[str], says: str
) -> None:
    """Status 2, and nothing is written."""
    folder = data_set(our_row(1))
    done = reasonrag("review", folder, *flags)
    assert done.status == 2
    assert says in done.err
    assert not (folder / "review").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "has no pair that can be shown: of its 0 rows"),
        ('[{"chosen": 1}]', "1 lack a prompt or a reply"),
        ('[{"a": 1}, {', "RAG_ProGuide.json is cut off: it ends after 1 whole items"),
        ('{"a": 1}', "1 lack a prompt"),
    ],
)
def test_a_data_set_without_pairs_is_refused(reasonrag: Reasonrag, tmp_path: Path, content: str, says: str) -> None:
    """Status 2, with the file and what is wrong in it."""
    (tmp_path / "RAG_ProGuide.json").write_text(content)
    done = reasonrag("review", tmp_path)
    assert done.status == 2
    assert says in done.err


def test_what_is_no_data_set_is_refused(reasonrag: Reasonrag, data_set: Callable[..., Path]) -> None:
    """A folder without the file, a folder that is not there, and the file itself."""
    folder = data_set(our_row(1))
    for wrong, says in ((folder.parent, "reasonrag pairs RUN"), (folder / "x", "no RAG_ProGuide.json")):
        for flag in ([], ["--report"]):
            done = reasonrag("review", wrong, *flag)
            assert done.status == 2
            assert says in done.err
    assert "give the directory" in reasonrag("review", folder / "RAG_ProGuide.json").err


def test_a_line_that_is_no_judgement_is_named(reasonrag: Reasonrag, data_set: Callable[..., Path]) -> None:
    """Only a last line may be torn; others are somebody's mistake, and not passed over."""
    folder = data_set(our_row(1), our_row(2))
    piped(folder, "a\nb\n")
    path = folder / "review" / "me.jsonl"
    path.write_bytes(b'{"verdict": "a"}\n' + path.read_bytes())
    for flags in ([], ["--report"]):
        done = reasonrag("review", folder, "--reviewer", "me", *flags)
        assert done.status == 2
        assert "me.jsonl, line 1 is not a line of reasonrag.review/1" in done.err


def test_two_sessions_do_not_write_one_file(data_set: Callable[..., Path]) -> None:
    """The second one is sent away; under another name both go."""
    folder = data_set(our_row(1))
    with terminal(folder) as seen:
        seen.shows(PROMPT)
        refused = piped(folder, "a\n")
        assert refused.returncode == 2
        assert "open in another review" in refused.stderr
        assert piped(folder, "a\n", "--reviewer", "you").returncode == 0
        seen.press("q")
        assert seen.ends()[0] == 0


def test_a_reviewer_has_the_users_name_unless_it_names_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment says is not trusted to be a name."""
    for name, expected in (("ann", "ann"), ("../ann", "reviewer"), ("ann smith", "reviewer")):
        monkeypatch.setenv("LOGNAME", name)
        assert reviewer_name(None) == expected
    assert reviewer_name("ärzte_2.b") == "ärzte_2.b"
    with pytest.raises(InputError):
        reviewer_name("a\nb")


def test_a_data_set_of_pairs_is_reviewed(reasonrag: Reasonrag, tmp_path: Path) -> None:
    """What `pairs` writes, strata and all."""
    assert reasonrag("generate", "--dataset", "atlas", "--limit", 6, "--run", tmp_path / "run").status == 0
    assert reasonrag("pairs", tmp_path / "run", "--out", tmp_path / "data").status == 0
    done = piped(tmp_path / "data", "a\nb\nt\n", "--json")
    [found] = json.loads(done.stdout)["reviewers"]
    assert (found["judged"], found["ties"], found["gone"]) == (3, 1, 0)
    assert any(each["mean_confidence"] for each in found["by_confidence"])


def test_a_file_in_the_published_layout_is_reviewed(shared_data: Path, tmp_path: Path) -> None:
    """Ten fields, indented, one passage longer than a screen."""
    content = (shared_data / "rollouts" / "ragproguide_format_pairs_from_real_trees.json").read_bytes()
    (tmp_path / "RAG_ProGuide.json").write_bytes(content)
    done = piped(tmp_path, "a\nb\nt\n")
    assert done.returncode == 0
    assert "all 3 pairs of the sample are judged" in done.stderr
    assert "Kiss and Tell" in done.stderr


def test_replies_made_to_be_slow_to_compare_are_shown_soon() -> None:
    """Words that alternate would take the cube of their number; here it is a second of computing at most."""
    started = time.process_time()
    mark_differences("a b " * (MAX_COMPARED_WORDS // 2), "a c " * (MAX_COMPARED_WORDS // 2))
    mark_differences("a b " * 20_000, "a c " * 20_000)
    assert time.process_time() - started < 10
