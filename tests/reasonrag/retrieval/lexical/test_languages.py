# ruff: noqa: RUF001 - other scripts are what is tested
"""Corpora in any language: a query finds the passage that answers it, and what found it is known."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import orjson
import pytest

from reasonrag.data.documents.language import recorded_languages
from reasonrag.errors import InputError
from reasonrag.progress import PlainBuildWatcher
from reasonrag.retrieval.dense.manifest import read_manifest, write_manifest
from reasonrag.retrieval.lexical.bm25 import build_bm25
from reasonrag.retrieval.opening import IndexPlace, open_index, open_index_places
from reasonrag.retrieval.retriever import IndexRetriever
from reasonrag.retrieval.settings import RetrievalSettings
from tests.helpers.indexes import open_or_build
from tests.helpers.jsonl import write_passages

GERMAN = [
    "Der Krankenhausentlassungsbericht wird am Tag der Entlassung an den Hausarzt gesendet.",
    "Der Brandschutzbeauftragte prüft jedes Jahr die Feuerlöscher und die Fluchtwege.",
    "Ein Urlaubsantrag muss zwei Wochen vor dem ersten freien Tag gestellt werden.",
    "Die Löschfrist der Patientenakte beträgt zehn Jahre nach dem Ende der Behandlung.",
    "Die Kantine in der Straße öffnet um elf Uhr und schließt um halb drei.",
]
CHINESE = [
    "北京故宫位于北京市中心，建于1420年。",
    "上海是中国最大的城市，人口超过两千万。",
    "长城全长两万多公里，始建于春秋战国时期。",
]
JAPANESE = [
    "富士山は日本で一番高い山です。標高は3776メートルです。",
    "緑茶は京都の宇治で作られています。",
    "ﾃﾚﾋﾞは居間にあります。",
]
KOREAN = [
    "서울의 인구는 약 940만 명이다.",
    "부산은 한국에서 두 번째로 큰 도시이다.",
    "제주도의 한라산은 높이가 1947미터이다.",
]
THAI = ["กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย", "ภูเก็ตเป็นเกาะที่ใหญ่ที่สุด"]
ARABIC = [
    "القَاهِرَةُ هي عاصمة مصر وأكبر مدنها.",
    "يقع المســتشفى الجديد في شارع النيل قرب الجسر.",
    "تفتح المكتبة أبوابها في التاسعة صباحا.",
]
RUSSIAN = [
    "Больница находится на улице Ленина рядом с вокзалом.",
    "Ёлка стоит в зале до конца января.",
    "Столовая закрыта в понедельник.",
]
HINDI = ["नई दिल्ली भारत की राजधानी है।", "अस्पताल सुबह आठ बजे खुलता है।"]
GREEK = ["Ο Οδυσσέας ήταν βασιλιάς της Ιθάκης.", "Η Αθήνα είναι η πρωτεύουσα της Ελλάδας."]
TURKISH = ["İstanbul Türkiye'nin en kalabalık şehridir.", "Isparta gülleriyle ünlü bir şehirdir."]
HEBREW = ["יְרוּשָׁלַיִם היא בירת ישראל.", "בית החולים נפתח בשעה שמונה."]
VIETNAMESE = ["Hà Nội là thủ đô của Việt Nam.", "Bệnh viện mở cửa lúc tám giờ sáng."]
POLISH = ["Wypis ze szpitala wysyłany jest do lekarza rodzinnego.", "Stołówka jest zamykana o trzeciej."]
PERSIAN = ["گزارش ترخیص بیمار به پزشک خانواده فرستاده می‌شود.", "درخواست مرخصی باید دو هفته قبل ارائه شود."]
SWEDISH = ["Sjukhusutskrivningsbrevet skickas till husläkaren samma dag.", "Matsalen stänger klockan tre."]
ENGLISH = [
    "The Who are a rock band from London that was formed in 1964.",
    "Ann's blood group is A, and that of her brother is B.",
    "C is a programming language which was made by Dennis Ritchie.",
    "C++ is a programming language that grew out of another one.",
    "GPT-4 was released by OpenAI in March 2023.",
    "The share of the café in the sales is 3,5 % of the whole.",
    "The ﬁle cabinet ２３ stands in the hall with the plants.",
    "To be, or not to be, that is the question.",
]
MIXED = [*GERMAN, "The hospital opens at eight and closes with the last visitor of the day.", *CHINESE]


def corpus_of(texts: list[str], path: Path) -> Path:
    return write_passages(path, ((str(number), "", text) for number, text in enumerate(texts)))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("languages")


def index_of(texts: list[str], home: Path) -> IndexRetriever:
    place = home / str(abs(hash(texts[0] + texts[-1])))
    return open_or_build(place / "index", corpus_of(texts, place / "corpus.jsonl"))


@pytest.mark.parametrize(
    ("texts", "query", "first", "fallback"),
    [
        # of the reports
        (GERMAN, "Entlassungsbericht", 0, True),
        (GERMAN, "Brandschutz", 1, True),
        (GERMAN, "Urlaubsanträge", 2, False),
        (GERMAN, "Löschfristen", 3, False),
        (GERMAN, "Patientenakten", 3, False),
        (CHINESE, "故宫博物院建于哪一年", 0, False),
        (CHINESE, "故宫", 0, False),
        (CHINESE, "北京市中心", 0, False),
        (JAPANESE, "富士山の標高", 0, False),
        (KOREAN, "서울의 인구", 0, False),
        # others of the kind
        (GERMAN, "Urlaubsregelung", 2, True),
        (GERMAN, "LOESCHFRIST", 3, False),
        (GERMAN, "STRASSE", 4, False),
        (JAPANESE, "茶", 1, True),
        (JAPANESE, "テレビ", 2, False),
        (THAI, "เมืองหลวง", 0, False),
        (ARABIC, "القاهرة", 0, False),
        (ARABIC, "مستشفى", 1, False),
        (RUSSIAN, "больницы", 0, False),
        (RUSSIAN, "елка", 1, False),
        (HINDI, "दिल्ली", 0, False),
        (GREEK, "ΟΔΥΣΣΕΑΣ", 0, False),
        (GREEK, "Αθηνα", 1, False),
        (TURKISH, "istanbul", 0, False),
        (TURKISH, "ISPARTA", 1, False),
        (HEBREW, "ירושלים", 0, False),
        (VIETNAMESE, unicodedata.normalize("NFD", "Hà Nội"), 0, False),
        (POLISH, "stolowka", 1, False),
        (PERSIAN, "گزارشهای", 0, False),
        (SWEDISH, "utskrivningsbrev", 0, True),
        # queries of English that found nothing
        (ENGLISH, "The Who", 0, False),
        (ENGLISH, "c++", 3, False),
        (ENGLISH, "GPT-4", 4, False),
        (ENGLISH, "3,5 %", 5, False),
        (ENGLISH, "file 23", 6, False),
        (ENGLISH, "Londonn", 0, True),
        # several languages in one folder, each passage analysed in its own
        (MIXED, "Urlaubsanträge", 2, False),
        (MIXED, "hospitals opening", 5, False),
    ],
)
def test_a_query_finds_its_passage_first(texts: list[str], query: str, first: int, fallback: bool, home: Path) -> None:
    """By the same words in any spelling, else by similar ones, which each passage says."""
    found = index_of(texts, home).search(query, 3)
    assert [each.id for each in found][:1] == [str(first)]
    assert {each.fallback for each in found} == {fallback}


@pytest.mark.parametrize(("texts", "query"), [(ENGLISH, "🎸🥁"), (GERMAN, "Xylophon"), (CHINESE, "猫")])
def test_what_shares_nothing_finds_nothing(texts: list[str], query: str, home: Path) -> None:
    assert index_of(texts, home).search(query, 3) == []


@pytest.mark.parametrize(
    ("texts", "languages"),
    [
        (GERMAN, ("de",)),
        (CHINESE, ("zh",)),
        (MIXED, ("de", "zh", "en")),
        (["Urlaubsantrag stellen", "Feuerlöscher prüfen", "Hausarzt anrufen"], ("de",)),
        (["1420", "3776"], ("en",)),
    ],
)
def test_the_languages_of_a_corpus_are_found_and_recorded(
    texts: list[str], languages: tuple[str, ...], home: Path
) -> None:
    """The commonest first; short passages are told together; what tells nothing is English, as it always was."""
    retriever = index_of(texts, home)
    assert retriever.identity.endswith(f":analyser=2:{'+'.join(languages)}")


def test_an_index_of_another_analyser_or_language_is_refused(tmp_path: Path) -> None:
    """With the command that builds it anew."""
    corpus, place = corpus_of(GERMAN, tmp_path / "corpus.jsonl"), tmp_path / "index"
    build_bm25(corpus, place)
    again = f"Run: reasonrag index build --kind bm25 --corpus {corpus} --out {place}"
    settings = RetrievalSettings(language=["de", "en"])
    with pytest.raises(InputError, match=f"analyser 2 for de, and queries.* for de.en. {again} --language de --lang"):
        open_index_places([IndexPlace("bm25", place, corpus)], settings, PlainBuildWatcher(print))
    other = read_manifest(place).model_copy(update={"analyser": 1})
    write_manifest(other, place)
    with pytest.raises(InputError, match=f"analyser 1 for de, and queries are read by analyser 2 for de. {again}$"):
        open_index(place)
    build_bm25(corpus, place, languages=["en"])
    assert open_index(place).search("Urlaubsantrag", 1)


@pytest.mark.parametrize(("said", "languages"), [("de", ()), ([1, {}, "de", "xx"], ("de",))], ids=str)
def test_only_known_languages_are_read_beside_a_corpus(said: Any, languages: tuple[str, ...], tmp_path: Path) -> None:
    """Whatever stands in that file."""
    (tmp_path / "a.summary.json").write_bytes(orjson.dumps({"sha256": "1", "languages": said}))
    assert recorded_languages(tmp_path / "a.jsonl", "1") == languages
    assert recorded_languages(tmp_path / "a.jsonl", "2") == ()


@pytest.mark.parametrize(("before", "printed"), [("", "cat\nimported\n"), ("import jax.lax; ", "imported\ncat\n")])
def test_bm25_takes_no_gpu_where_jax_is_installed(before: str, printed: str, tmp_path: Path) -> None:
    """JAX takes three quarters of the memory once it is tried out. Who imports it, before or after, gets it."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("print('imported')")
    (tmp_path / "jax" / "lax.py").write_text("def top_k(*_):\n    print('a GPU is taken')\n")
    code = f"{before}from reasonrag.retrieval.lexical.analysis import Analyser; print(*Analyser(['en']).query('cats'))"
    command = [sys.executable, "-c", f"{code}; import jax.lax"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == printed
