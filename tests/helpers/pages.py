"""A real browser for the tests of pages, and what no page may do in it.

Decides what is watched: a test fails at an error in the console (a refusal by the page's own policy is one), an
uncaught exception, a dialog, a second window, a way to another page, and any request to anywhere but the page and its
own server. Knows nothing of what a page shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route

ARTEFACTS = Path(__file__).parents[1] / "artefacts"
"""Screenshots of the last run, by test; git does not see them."""
WIDE, NARROW = (1280, 800), (360, 740)
PATIENCE_MS = 20_000
"""Of one wait: a busy machine is slow, and a page that does not answer is wrong."""
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
PWNED = "data-pwned"
"""Attribute of every element that hostile text would make, see hostile.py; `window.pwned` is what its scripts set."""

Visit = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window; tests that need it are skipped, visibly, where none starts.

    Of a module, not of the session: as long as Playwright waits for it here, nothing else may run an event loop in this
    thread. Commands of the module run as processes, or before it."""
    from playwright.sync_api import expect, sync_playwright  # here: every test process would load it otherwise

    from tests.helpers.get_browser import start

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = start(playwright)
        if browser is None:
            pytest.skip("no browser starts (make test-all gets one, or set REASONRAG_TEST_BROWSER)")
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """Opens an address (a file's or a loopback server's) as a reader would, and watches it until the test is over."""
    watched: list[Watch] = []

    def opened(address: str | Path, *, size: tuple[int, int] = WIDE, scheme: str = "light") -> Page:
        url = address.resolve().as_uri() if isinstance(address, Path) else address
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if scheme == "dark" else "light",
            reduced_motion="reduce",  # what moves is somewhere else in every picture
            service_workers="block",
        )
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        watched.append(Watch(page, url))
        page.goto(url)
        return page

    yield opened
    complaints = []
    for number, each in enumerate(watched):
        complaints += each.end()
        keep(each.page, f"{request.node.name}-{number}" if number else request.node.name)
        each.page.context.close()
    assert not complaints, "\n".join(complaints)


class Watch:
    """What a page did that it must not do."""

    def __init__(self, page: Page, home: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        self._home = urlsplit(home)
        page.context.route("**/*", self._route)
        page.context.on("page", lambda other: self._say(f"opened a window: {other.url}"))
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._say(f"uncaught: {error}"))
        page.on("dialog", lambda dialog: (self._say(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("websocket", lambda socket: self._say(f"websocket: {socket.url}"))
        page.on("download", lambda file: self._say(f"download: {file.url[:200]}"))
        page.on("request", self._request)

    def _say(self, complaint: str) -> None:
        self.complaints.append(complaint[:500])

    def _console(self, message: ConsoleMessage) -> None:
        has_ended = "ERR_CONNECTION_REFUSED" in message.text  # its own server, as the test has: others are never asked
        if message.type in ("error", "assert") and not has_ended:
            self._say(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        if not self._is_own(request.url):
            self._say(f"request: {request.url[:200]}")
        elif request.is_navigation_request() and self._home.path != urlsplit(request.url).path:
            self._say(f"went to {request.url[:200]}")

    def _route(self, route: Route) -> None:
        """Nothing leaves: what is asked of others is told by `_request`, and not sent."""
        if self._is_own(route.request.url):
            route.continue_()
        else:
            route.abort()

    def _is_own(self, url: str) -> bool:
        there = urlsplit(url)
        if self._home.scheme == "file":
            return (there.scheme, there.path) == ("file", self._home.path)
        return (there.scheme, there.netloc) == (self._home.scheme, self._home.netloc)

    def end(self) -> list[str]:
        """All that was wrong, a last look at what hostile text may have done included."""
        try:
            self.complaints += did_run(self.page)
        except Exception as error:  # noqa: BLE001 - a page that is gone or hangs is the finding
            self._say(f"the page does not answer: {error}")
        return self.complaints


def did_run(page: Page) -> list[str]:
    """What hostile text has done, or made of itself, in this page so far."""
    found = page.evaluate(
        """name => {
          const all = [...document.querySelectorAll('*')];
          const attributes = all.flatMap(each => [...each.attributes]);
          const short = text => text.slice(0, 200);
          return [
            ...(window.pwned === undefined ? [] : [`ran: ${window.pwned}`]),
            ...all.filter(each => each.hasAttribute(name)).map(each => `became an element: ${short(each.outerHTML)}`),
            ...attributes.filter(each => /^on/i.test(each.name)).map(each => `has a handler: ${short(each.value)}`),
            ...attributes
              .filter(each => /^(xlink:)?(href|src|action|formaction|srcdoc|data)$/i.test(each.name))
              .filter(each => /^\\s*javascript:/i.test(each.value))
              .map(each => `became an address: ${short(each.value)}`),
          ];
        }""",
        PWNED,
    )
    return [str(each) for each in found]


def keep(page: Page, name: str) -> Path:
    """A screenshot of what is seen now, among the artefacts."""
    path = ARTEFACTS / (re.sub(r"[^\w.-]+", "-", name).strip("-")[:120] + ".png")
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path, timeout=PATIENCE_MS)
    return path


def barriers(page: Page) -> list[str]:
    """What keeps readers with a disability out, by WCAG 2.1 A and AA, as far as axe-core can tell."""
    from axe_playwright_python.sync_playwright import Axe

    options = {"runOnly": {"type": "tag", "values": WCAG}, "resultTypes": ["violations"], "preload": False}
    told = []
    for each in Axe().run(page, options=options).response["violations"]:
        first = each["nodes"][0]
        why = " ".join(first["failureSummary"].split())
        told.append(f"{each['id']}, {len(each['nodes'])} times: {why} At {first['html'][:200]}")
    return told


def overflow(page: Page) -> int:
    """Pixels by which the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
