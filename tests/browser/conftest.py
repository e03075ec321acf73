"""The built book in headless Chromium, from a server and from disk.

COMMLAB_HTML names the built pages (default _build/html); `make book` builds them.
"""

from __future__ import annotations

import functools
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.built_book import HTML, page_names
from tools.chromium import MISSING, find_chromium

FAILED = Path(__file__).parent / "failed"
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LOADED = """() => {
  const figures = [...document.querySelectorAll('figure.explore')];
  const sliders = figures.filter(figure => figure.querySelector('input[type=range]'));
  const math = document.querySelectorAll('.math');
  return document.readyState === 'complete'
    && document.querySelector('.lang-switch')
    && sliders.every(figure => figure.dataset.ready)
    && (!math.length || document.querySelector('mjx-container'));
}"""
MATH_DONE = "() => window.MathJax?.startup?.promise?.then(() => true) ?? true"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Forget the screenshots of an earlier run."""
    if not hasattr(session.config, "workerinput"):
        shutil.rmtree(FAILED, ignore_errors=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that asks for `page_name` every page of the book."""
    if "page_name" in metafunc.fixturenames:
        # Without a build the one test fails and says what to do: see html.
        metafunc.parametrize("page_name", page_names() or ["book/index.html"])


@pytest.fixture(scope="session")
def html() -> Path:
    """The folder of the built book."""
    if not (HTML / "searchindex.js").is_file():
        pytest.fail(f"there is no built book in {HTML}: run `make book` first.")
    return HTML


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output free of one line per request."""


@pytest.fixture(scope="session")
def server(html: Path) -> Iterator[str]:
    """Address of a local server of the built book."""
    handler = functools.partial(_QuietHandler, directory=str(html))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}/"
        httpd.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of this process."""
    path = find_chromium()
    if path is None:
        pytest.fail(MISSING)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


class Visit:
    """A browser window that notes what a reader must never meet.

    Attributes
    ----------
    foreign : list of str
        Requests that left the book.
    errors : list of str
        Console errors, uncaught exceptions and requests that failed.
    """

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.foreign: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self._note_request(request.url))
        page.on("requestfailed", lambda request: self.errors.append(f"failed: {request.url}"))
        page.on("pageerror", lambda error: self.errors.append(f"exception: {error}"))
        page.on("console", self._note_console)

    def _note_request(self, url: str) -> None:
        if not url.startswith((self.base, "data:", "blob:")):
            self.foreign.append(url)

    def _note_console(self, message: object) -> None:
        if message.type == "error":
            self.errors.append(f"console: {message.text} {message.location.get('url', '')}")

    def go(self, name: str) -> Page:
        """Open a page of the book and wait until it has settled."""
        self.page.goto(self.base + name)
        self.page.wait_for_function(LOADED)
        self.page.evaluate(MATH_DONE)
        return self.page


Open = Callable[..., "contextmanager[Visit]"]


@pytest.fixture
def open_book(
    browser: Browser, server: str, html: Path, request: pytest.FixtureRequest
) -> Iterator[Open]:
    """``open_book(language, theme, width, disk)`` opens a fresh window on the book."""
    windows = []

    def open_window(
        language: str | None = "both",
        theme: str = "light",
        width: int = 1200,
        disk: bool = False,
        locale: str = "en-US",
    ) -> Visit:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=theme,
            locale=locale,
            reduced_motion="reduce",
        )
        if disk:
            context.set_offline(True)
        context.set_default_timeout(15_000)
        page = context.new_page()
        if language:
            page.add_init_script(
                f"localStorage.getItem('commlab-language') || "
                f"localStorage.setItem('commlab-language', '{language}')"
            )
        windows.append(context)
        return Visit(page, html.as_uri() + "/" if disk else server)

    yield open_window
    report = getattr(request.node, "call_report", None)
    for number, context in enumerate(windows):
        if report is not None and report.failed:
            FAILED.mkdir(exist_ok=True)
            name = re.sub(r"[^\w.-]+", "-", request.node.nodeid.split("::", 1)[1])
            for page in context.pages:
                page.screenshot(path=FAILED / f"{name}-{number}.png")
        context.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Let a fixture know whether its test failed."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.call_report = report
