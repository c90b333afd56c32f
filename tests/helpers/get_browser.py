"""Which Chromium the tests of pages use; run as a script it gets one where there is none.

    python tests/helpers/get_browser.py  # one line that says what was found; never fails: tests are skipped instead

Looks at what is installed, then asks Playwright for its own build, then the system's packages, if this is root's to do.
Both attempts are bounded: a host that cannot be reached costs seconds, a slow one minutes, once (`make` keeps a stamp).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Error, Playwright, sync_playwright

NAMED = os.environ.get("REASONRAG_TEST_BROWSER")
"""Path of a Chromium or Chrome; then no other is looked for. Read here, since tests see none of these settings."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # beside what tests look at, nothing has an address
]
DOWNLOAD_S = 300
INSTALL_S = 600
"""Unpacking is not stopped halfway without need: the system's packages would stay broken."""
APT = "apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=10 -o DPkg::Lock::Timeout=60".split()
PACKAGE = [*APT, "install", "--yes", "--no-install-recommends", "chromium"]
WAYS = {
    "playwright": [([sys.executable, "-m", "playwright", "install", "--no-shell", "chromium"], DOWNLOAD_S)],
    "packages": [([*APT, "update"], DOWNLOAD_S), ([*PACKAGE, "--download-only"], DOWNLOAD_S), (PACKAGE, INSTALL_S)],
}
"""How to get one: commands with the seconds that each may take. Playwright's own build goes into its cache."""
QUICKLY = {"PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": "10000", "DEBIAN_FRONTEND": "noninteractive"}


def candidates(playwright: Playwright) -> Iterator[Path]:
    """Browsers that are there, the one that was named or else the likeliest first; whether they start is open."""
    if NAMED:
        yield Path(NAMED)
        return
    yield from (Path(found) for name in NAMES if (found := shutil.which(name)))
    if (own := Path(playwright.chromium.executable_path)).is_file():
        yield own


def start(playwright: Playwright) -> Browser | None:
    """The first browser that starts, without a window and with an empty profile; None where none does."""
    for path in candidates(playwright):
        try:
            return playwright.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=30_000)
        except Error:
            continue  # a stub that only says where to get one, or libraries are missing
    return None


def found() -> str | None:
    """What starts here, in words."""
    with sync_playwright() as playwright:
        browser = start(playwright)
        return None if browser is None else f"Chromium {browser.version}"


def refusal(way: str) -> str | None:
    """Why a way did not lead to a browser, or None. The system's packages are root's to install."""
    if way == "packages" and (os.geteuid() != 0 or not shutil.which("apt-get")):
        return "apt-get is not ours to use"
    return next(filter(None, (attempt(*step) for step in WAYS[way])), None)


def attempt(command: list[str], seconds: int) -> str | None:
    """Run it silently. Returns what it said last where it failed, or None."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            env=os.environ | QUICKLY,
        )
    except subprocess.TimeoutExpired:
        return f"nothing after {seconds} s"
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    errors = [line for line in said if line.startswith(("E:", "Error:"))] or said[-1:] or [f"status {done.returncode}"]
    return errors[0][:200] if done.returncode else None


def main() -> None:
    there = found()
    if there is None and NAMED:
        print(f"no browser starts at REASONRAG_TEST_BROWSER={NAMED}: tests of pages will be skipped")
        return
    refusals = []
    for way in WAYS:
        if there is None:
            print(f"tests of pages need a browser; getting Chromium ({way}) ..", flush=True)
            if why := refusal(way):
                refusals.append(f"{way}: {why}")
            there = found()
    if there:
        print(f"tests of pages use {there}")
    else:
        print(f"no browser, so tests of pages will be skipped ({'; '.join(refusals) or 'none starts'})")


if __name__ == "__main__":
    main()
