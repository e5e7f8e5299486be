"""A real browser for the tests of pages: Chromium, as it is installed on this machine."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

# No sandbox, as tests may run as root in a container; nothing that asks the network for updates.
_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


@contextlib.contextmanager
def opened_browser(*more: str) -> Iterator[Browser]:
    """Yield a browser with further command-line options; skip the test if Chromium is not installed.

    Playwright runs an event loop in its thread, so a browser for the whole session would disturb other tests.
    """
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("no chromium on PATH; install it to have the pages looked at in a real browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=[*_OPTIONS, *more])
        yield browser
        browser.close()
