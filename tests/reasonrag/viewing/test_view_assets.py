"""What the page is made of: libraries as they were published, and scripts that can make no markup of text."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from pathlib import Path

import pytest

ASSETS = Path(str(resources.files("reasonrag.viewing") / "assets"))
VENDOR = ASSETS / "vendor"
LIBRARIES = re.findall(
    r"^\| `(\S+\.js)` \|.*\| `(\w{64})` \|$", (VENDOR / "README.md").read_text("utf-8"), re.MULTILINE
)
MAKES_MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTML|srcdoc"
    r"|\.html\(|\beval\(|new Function|javascript:|setTimeout\(\s*[\"'`]"
)


def test_every_library_stands_in_the_table() -> None:
    """Nothing comes along that nobody can name."""
    assert {name for name, _ in LIBRARIES} == {path.name for path in VENDOR.glob("*.js")}


@pytest.mark.parametrize(("name", "digest"), LIBRARIES)
def test_a_library_is_as_it_was_published(name: str, digest: str) -> None:
    """Byte by byte, with its licence beside it, and with nothing that would end the script it stands in."""
    content = (VENDOR / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == digest
    assert b"</script" not in content.lower()
    assert (VENDOR / f"{name.partition('.')[0]}.LICENSE").is_file()


@pytest.mark.parametrize("path", sorted(ASSETS.glob("*.js")), ids=lambda path: path.name)
def test_our_scripts_make_no_markup_of_text(path: Path) -> None:
    """Text of others becomes text nodes and attributes that hold no code; what would parse or run it does not occur."""
    source = path.read_text("utf-8")
    assert not MAKES_MARKUP.search(source)
    assert "</script" not in source.lower()
