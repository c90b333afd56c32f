"""Whether reasonrag can share an environment with other packages: uv resolves both, and installs nothing.

python tests/helpers/beside_others.py  # the newest of each today, as a table; it only reports
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OTHERS = [line for line in (ROOT / "tests/beside_others.txt").read_text("utf-8").splitlines() if line[:1] not in "#"]
EXTRAS = ("corpus", "hub", "index", "ray", "tokens")
"""All but those with models: `embed` and `rl` bring torch, `train` has an environment of its own."""
TARGET = ("--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_34")
"""Where most of them are used, so that the answer is the same on every machine; no package is built for it."""
UNREACHABLE = ("error sending request", "Failed to establish a new connection", "Temporary failure in name resolution")
"""What uv and pipx say where no package index answers."""


def resolved(requirement: str, *given: object) -> subprocess.CompletedProcess[str]:
    """The versions that uv finds for a requirement and what else is given to it: by default, reasonrag with its extras.
    Status and stderr are uv's."""
    uv = Path(sys.executable).with_name("uv")
    given = given or (ROOT / "pyproject.toml", *(word for extra in EXTRAS for word in ("--extra", extra)))
    command = (uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--no-build", *TARGET, *given, "-")
    return subprocess.run(
        [str(each) for each in command], input=requirement, capture_output=True, text=True, check=False
    )


def version_in(versions: str, name: str) -> str:
    found = re.search(rf"^{re.escape(name)}==(\S+)", versions, re.MULTILINE)
    return found[1] if found else ""


def main() -> None:
    row = "{:<26}{:<14}{:<14}{:<12}{:<12}{}".format
    print(row("package", "tested", "newest", "openai", "aiohttp", "beside reasonrag"))
    for other in OTHERS:
        name, _, tested = other.partition("==")
        newest = version_in(resolved(name, "--no-deps").stdout, name)
        done = resolved(f"{name}=={newest}" if newest else name)
        both = [version_in(done.stdout, each) for each in ("openai", "aiohttp")]
        said = "yes" if done.returncode == 0 else "no: " + " ".join(done.stderr.split())
        print(row(name, tested, newest or "?", *both, said), flush=True)


if __name__ == "__main__":
    main()
