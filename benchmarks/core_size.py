"""How large reasonrag is without extras: its wheel, installed by pip into an environment of its own.

    python benchmarks/core_size.py  # every package with its MB, the largest first

Counts what pip leaves in site-packages, with the .pyc files that it compiles, as `du -m` does: disk blocks, and MB of
2**20 bytes. pip and setuptools are not in that environment. Knows no limits: tests/end_to_end/test_install.py has them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        packages, mb = measured(installed(wheel(Path(folder)), into=Path(folder) / "environment"))
    for name, size in packages.items():
        print(f"{size:8.1f}  {name}")
    print(f"{mb:8.1f}  MB in all: {len(packages)} packages, reasonrag among them")


def wheel(folder: Path) -> Path:
    """Builds it into a folder, with the hatchling of this environment."""
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    [built] = folder.glob("reasonrag-*.whl")
    return built


def installed(*requirements: Path | str, into: Path) -> Path:
    """The site-packages of an environment, which is made if it is not there."""
    if not into.exists():
        venv.create(into)
    _pip("--python", into / "bin" / "python", "install", *requirements)
    [site] = into.glob("lib/python*/site-packages")
    return site


def measured(site: Path) -> tuple[dict[str, float], float]:
    """MB of each package, the largest first, and of the whole folder, whose directories count, too."""
    sizes = {
        each.name: _mb(Path(each.locate_file(file)) for file in each.files or ())
        for each in distributions(path=[str(site)])
    }
    return dict(sorted(sizes.items(), key=lambda item: -item[1])), _mb([site, *site.rglob("*")])


def _mb(paths: Iterable[Path]) -> float:
    return sum(path.lstat().st_blocks for path in paths) * 512 / 2**20


def _pip(*words: Path | str) -> None:
    """Fails with what pip wrote to stderr."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")


if __name__ == "__main__":
    main()
