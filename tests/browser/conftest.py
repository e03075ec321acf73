"""The built book in headless Chromium, from a server and from disk.

COMMLAB_HTML names the built pages (default _build/html); `make book` builds them.
"""

from __future__ import annotations

import contextlib
import functools
import re
import shutil
import threading
from collections.abc import Callable, Iterator
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of a page beside one another: the largest page first, axe at its end.

    With --dist=worksteal the tests of a page then mostly run in one process and share its windows.
    """

    def place(item: pytest.Item) -> tuple[bool, int, str, bool]:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        name = parameters.get("page_name", "")
        file = HTML / name
        size = file.stat().st_size if file.is_file() else 0
        return not name, -size, name, item.path.stem == "test_accessibility"

    ours = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    others = [item for item in items if item not in ours]
    items[:] = others + sorted(ours, key=place)


@pytest.fixture(scope="session")
def html() -> Path:
    """The folder of the built book."""
    if not (HTML / "searchindex.js").is_file():
        pytest.fail(f"there is no built book in {HTML}: run `make book` first.")
    return HTML


class _QuietHandler(SimpleHTTPRequestHandler):
    def handle(self) -> None:
        """Answer; a window that closes before all has arrived is no error of the server."""
        with contextlib.suppress(ConnectionError):
            super().handle()

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


Open = Callable[..., Visit]
# What a test may change on a page that is shared, and what tells that it did.
AS_LOADED = """() => JSON.stringify([
  {...document.documentElement.dataset},
  [...document.querySelectorAll('input[type=range]')].map(input => input.value),
  document.querySelectorAll('*').length,
])"""


def new_window(
    browser: Browser,
    server: str,
    html: Path,
    language: str | None = "both",
    theme: str = "light",
    width: int = 1200,
    disk: bool = False,
    locale: str = "en-US",
) -> Visit:
    """Open a window of its own on the book, from the server or from disk."""
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
    return Visit(page, html.as_uri() + "/" if disk else server)


def has_failed(request: pytest.FixtureRequest) -> bool:
    """Whether the test that asked has failed; known once it has run."""
    report = getattr(request.node, "call_report", None)
    return report is not None and report.failed


def keep_pictures(request: pytest.FixtureRequest, visits: list[Visit]) -> None:
    """Save what the windows of a failed test show."""
    FAILED.mkdir(exist_ok=True)
    name = re.sub(r"[^\w.-]+", "-", request.node.nodeid.split("::", 1)[1])
    for number, visit in enumerate(visits):
        for page in visit.page.context.pages:
            page.screenshot(path=FAILED / f"{name}-{number}.png")


@pytest.fixture
def open_book(
    browser: Browser, server: str, html: Path, request: pytest.FixtureRequest
) -> Iterator[Open]:
    """``open_book(language, theme, width, disk, locale)`` opens a fresh window on the book."""
    visits: list[Visit] = []

    def open_window(*arguments: object, **options: object) -> Visit:
        visits.append(new_window(browser, server, html, *arguments, **options))
        return visits[-1]

    yield open_window
    if has_failed(request):
        keep_pictures(request, visits)
    for visit in visits:
        visit.page.context.close()


class SharedWindow:
    """One loaded page for the tests that follow one another on it."""

    def __init__(self) -> None:
        self.name = ""
        self.visit: Visit | None = None
        self.as_loaded = ""

    def show(self, name: str, open_new: Callable[[], Visit]) -> Visit:
        """Return the window on this page; load it unless it is there as it was loaded."""
        if self.visit is None or self.name != name:
            self.close()
            self.name, self.visit = name, open_new()
            self.as_loaded = self.visit.go(name).evaluate(AS_LOADED)
        return self.visit

    def release(self, is_suspect: bool) -> None:
        """Close the window if a test has changed the page or may have."""
        if is_suspect or self.visit.page.evaluate(AS_LOADED) != self.as_loaded:
            self.close()

    def close(self) -> None:
        if self.visit is not None:
            self.visit.page.context.close()
        self.visit = None


@pytest.fixture(scope="session")
def shared_windows(browser: Browser) -> Iterator[dict[str, SharedWindow]]:
    """The shared windows of this process: at most one page in each."""
    windows = {"desk": SharedWindow(), "phone": SharedWindow()}
    yield windows
    for window in windows.values():
        window.close()


def _shared(kind: str, options: dict[str, object]) -> Callable[..., Iterator[Visit]]:
    @pytest.fixture(name=kind)
    def window(
        shared_windows: dict[str, SharedWindow],
        browser: Browser,
        server: str,
        html: Path,
        page_name: str,
        request: pytest.FixtureRequest,
    ) -> Iterator[Visit]:
        shared = shared_windows[kind]
        visit = shared.show(page_name, lambda: new_window(browser, server, html, **options))
        yield visit
        if has_failed(request):
            keep_pictures(request, [visit])
        shared.release(has_failed(request))

    return window


# A loaded page, shared by the tests that leave it as it was (one that does not, costs a load):
# on a wide screen from the server, and as wide as a phone from disk.
desk = _shared("desk", {})
phone = _shared("phone", {"width": 360, "disk": True})


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Let a fixture know whether its test failed."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.call_report = report
