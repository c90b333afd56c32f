"""Named data sets from the Hub: the real client against a small local hub."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from reasonrag.data.datasets import REPOSITORY, find_questions
from reasonrag.data.settings import HUB_SPLITS
from reasonrag.errors import InputError
from tests.helpers.hub_server import run_python, running_hub

QUESTIONS = b'{"id": "train_0", "question": "Who wrote it?", "golden_answers": ["Ada"], "metadata": {}}\n'


async def test_questions_come_from_the_collection_at_a_recorded_commit(tmp_path: Path) -> None:
    """The split's file is fetched at the commit `main` stands for, and the commit is known afterwards."""
    code = (
        "from reasonrag.data.datasets import find_questions\n"
        "from pathlib import Path\n"
        "source = find_questions('HotpotQA', 'train', None, home=Path('.'))\n"
        "print(source.revision, source.total, next(source.read()).question)"
    )
    with running_hub() as hub:
        commit = hub.put(REPOSITORY, {"hotpotqa/train.jsonl": QUESTIONS})
        done = await run_python(code, endpoint=hub.endpoint, home=tmp_path)
    assert done.stdout.strip() == f"{commit} 1 Who wrote it?", done.stderr


async def test_a_packed_file_of_any_data_set_on_the_hub_is_a_corpus(tmp_path: Path) -> None:
    """Fetched by the Hub's own client, at a commit, and unpacked like any other."""
    line = '{"id": "a", "contents": "Paris"}'
    code = (
        "from pathlib import Path; from reasonrag.data.compressed import plain_corpus\n"
        "source = Path('hf://datasets/someone/wiki/wiki.jsonl.gz')\n"
        "print(plain_corpus(source, Path('home'), say=print).read_text())"
    )
    with running_hub() as hub:
        hub.put("someone/wiki", {"wiki.jsonl.gz": gzip.compress(line.encode())})
        done = await run_python(code, endpoint=hub.endpoint, home=tmp_path)
    first, *_, last = done.stdout.splitlines()
    assert (first, last) == ("fetching wiki.jsonl.gz of someone/wiki from the Hub", line), done.stderr


@pytest.mark.parametrize(
    ("before", "told"),
    [("", "nq/train.jsonl"), ("sys.modules['huggingface_hub'] = None", "the hub extra: pip install 'reasonrag[hub]'.")],
)
async def test_without_the_hub_a_way_out_is_named(before: str, told: str, tmp_path: Path) -> None:
    """Without a network or the extra the message names what is missing and --data-dir; exit status 2, no traceback."""
    code = (
        f"import sys; {before}\nfrom reasonrag.cli import run\n"
        "sys.exit(run(['generate', '--dataset', 'nq', '--corpus', 'c.jsonl', '--model', 'offline', '--run', 'r']))"
    )
    done = await run_python(code, endpoint="http://127.0.0.1:9", home=tmp_path)
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert "--data-dir" in done.stderr
    assert "Traceback" not in done.stderr


async def test_all_evaluation_splits_of_the_collection_come_by_one_word(tmp_path: Path) -> None:
    """`pairs --eval hub`: every split but train, at a recorded commit, under its own name."""
    code = (
        "from reasonrag.data.eval_splits import EvalSplits, add_named\n"
        "splits = EvalSplits(); add_named(splits, ['hub'])\n"
        "print(*(each.name for each in splits.found), *{each.revision for each in splits.found})\n"
        "print(next(splits.found[0].read()).question)"
    )
    with running_hub() as hub:
        every = {f"{dataset}/{split}.jsonl" for dataset, splits in HUB_SPLITS.items() for split in splits}
        commit = hub.put(REPOSITORY, dict.fromkeys(sorted(every), QUESTIONS))
        done = await run_python(code, endpoint=hub.endpoint, home=tmp_path)
    names = "2wikimultihopqa/dev bamboogle/test hotpotqa/dev musique/dev nq/dev nq/test popqa/test triviaqa/dev"
    assert done.stdout.split("\n")[:2] == [f"{names} triviaqa/test {commit}", "Who wrote it?"], done.stderr


@pytest.mark.parametrize(
    ("dataset", "split", "message"),
    [
        ("hotpotqa", "test", "hotpotqa has no split 'test'; choose from dev, train"),
        ("pop_qa", "dev", "popqa has no split 'dev'; choose from test, train"),
        ("hotqa", "train", "there is no data set 'hotqa'; did you mean 'hotpotqa'"),
    ],
)
def test_unknown_names_are_refused_with_those_that_exist(dataset: str, split: str, message: str) -> None:
    """Nothing is asked of the Hub for a name the collection does not have."""
    with pytest.raises(InputError, match=message):
        find_questions(dataset, split, None, home=Path())
