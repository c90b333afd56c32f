"""The watch over pages sees what it is there to see: a test that could not fail would prove nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser

from tests.helpers.pages import Watch

WRONG = {
    "console: oops": "<script>console.error('oops')</script>",
    "uncaught: nope": "<script>nope()</script>",
    "uncaught: late": "<script>Promise.reject(new Error('late'))</script>",
    "request: http://example.com/x.png": "<img src='http://example.com/x.png' alt=''>",
    "request: file": "<img src=other.png alt=''>",
    "request: http://127.0.0.1:9/": "<script>fetch('http://127.0.0.1:9/').catch(() => 0)</script>",
    "websocket: ws://127.0.0.1:1234/": "<script>new WebSocket('ws://127.0.0.1:1234/')</script>",
    "dialog: hello": "<script>alert('hello')</script>",
    "opened a window": "<script>open('about:blank')</script>",
    "ran: 3": "<script>window.pwned = 3</script>",
    "became an element": "<p data-pwned>text</p>",
    "became an address": "<a href=' javascript:1'>text</a>",
    "has a handler": "<p onclick='1'>text</p>",
}
REFUSED = {
    "Content Security Policy": (
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'\"><script>1</script>"
    ),
}


@contextmanager
def opened(browser: Browser, body: str, place: Path) -> Iterator[Watch]:
    path = place / "page.html"
    path.write_text(f"<!doctype html><html lang=en><title>page</title><main><h1>page</h1>{body}</main>")
    with browser.new_context(viewport={"width": 360, "height": 740}) as context:
        watch = Watch(context.new_page(), path.as_uri())
        watch.page.goto(path.as_uri())
        watch.page.wait_for_timeout(50)  # what goes wrong goes wrong now
        yield watch


def test_what_a_page_must_not_do_is_seen(browser: Browser, tmp_path: Path) -> None:
    """All of it in one page; what a policy refuses in another, which would refuse the rest too."""
    for bodies in (WRONG, REFUSED):
        with opened(browser, "".join(bodies.values()), tmp_path) as watch:
            found = watch.end()
        assert [each for each in bodies if not any(each in said for said in found)] == [], found
