"""The browser of the page tests, and the word in the summary when it is missing.

Needs Chromium and the Python package playwright. Without them the page tests are skipped, and the summary
says that they were NOT run; with HEADWISE_REQUIRE_BROWSER=1 they fail instead.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

MISSING = "browser tests NOT run"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for path in map(shutil.which, names) if path), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = chromium()
    if not path or not find_spec("playwright"):
        reason = f"{MISSING}: {'the package playwright' if path else 'Chromium'} is not installed"
        if os.environ.get("HEADWISE_REQUIRE_BROWSER") == "1":
            pytest.fail(f"{reason}, and HEADWISE_REQUIRE_BROWSER=1 asks for it")
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=path,
            headless=True,
            args=FLAGS,
            ignore_default_args=["--hide-scrollbars"],  # a reader sees them
        )
        yield started
        started.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """show(html, fragment="", **context options) -> the open page.

    At the end of the test pages must have logged no warning and no error and asked for nothing but itself.
    """
    contexts: list[Any] = []
    complaints: list[tuple[str, str]] = []

    def open_page(html: str, fragment: str = "", width: int = 1280, height: int = 900, **options: Any) -> Any:
        file = tmp_path / f"report{len(contexts)}.html"
        file.write_text(html, encoding="ascii", newline="\n")
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(5000)
        page.on("console", lambda message: complaints.append((message.type, message.text)))
        page.on("pageerror", lambda error: complaints.append(("error", str(error))))
        page.on("request", lambda request: complaints.append(("request", request.url)))
        page.goto(file.as_uri() + fragment)
        return page

    yield open_page
    for context in contexts:
        context.close()
    own = [("request", (tmp_path / f"report{i}.html").as_uri()) for i in range(len(contexts))]
    unexpected = [
        (kind, text)
        for kind, text in complaints
        if kind in ("error", "warning") or (kind == "request" and (kind, text.partition("#")[0]) not in own)
    ]
    assert not unexpected, unexpected


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)]
    missed = [reason for reason in reasons if MISSING in reason]
    if missed:
        terminalreporter.section("browser", sep="=", yellow=True, bold=True)
        terminalreporter.write_line(
            f"{missed[0].removeprefix('Skipped: ')}. {len(missed)} tests of the page skipped."
        )
