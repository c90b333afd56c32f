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
CONNECT_MS = "10000"
DOWNLOAD_S, PACKAGES_S = 300, 300
INSTALL_S = 600
"""Unpacking is not stopped halfway without need: the system's packages would stay broken."""


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


def download() -> str | None:
    """Playwright's own build into its cache. Returns why not, or None."""
    environment = os.environ | {"PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": CONNECT_MS}
    command = [sys.executable, "-m", "playwright", "install", "--no-shell", "chromium"]
    return attempt(command, DOWNLOAD_S, environment)


def install() -> str | None:
    """The system's package, as root only. Returns why not, or None."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return "apt-get is not ours to use"
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    get = "apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=10 -o DPkg::Lock::Timeout=60".split()
    package = ["install", "--yes", "--no-install-recommends", "chromium"]
    for command, seconds in (
        (["update"], PACKAGES_S),
        ([*package, "--download-only"], PACKAGES_S),
        (package, INSTALL_S),
    ):
        if failure := attempt([*get, *command], seconds, environment):
            return failure
    return None


def attempt(command: list[str], seconds: int, environment: dict[str, str]) -> str | None:
    """Run it silently. Returns what it said last where it failed, or None."""
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, errors="replace", timeout=seconds, env=environment
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
    for name, ways in (("playwright", download), ("packages", install)):
        if there is None:
            print(f"tests of pages need a browser; getting Chromium ({name}) ..", flush=True)
            if refusal := ways():
                refusals.append(f"{name}: {refusal}")
            there = found()
    if there:
        print(f"tests of pages use {there}")
    else:
        print(f"no browser, so tests of pages will be skipped ({'; '.join(refusals) or 'none starts'})")


if __name__ == "__main__":
    main()
