"""Prefect's UI as a person uses it: pages, forms and buttons by what is written on them, a screenshot of each step."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, Page, expect
from playwright.sync_api import TimeoutError as TooLate

# An overloaded machine may take its time; nothing here measures.
PATIENCE = 180_000.0
RUN_PATIENCE = 900_000.0
_ENDS = ("Completed", "Failed", "Cancelled", "Crashed")


class PrefectUi:
    """One window of a browser, at a server."""

    def __init__(self, page: Page, url: str, screenshots: Path) -> None:
        """Open nothing yet; ``screenshots`` is a folder, in which pictures are numbered in their order."""
        self.page, self._url, self._screenshots = page, url, screenshots
        self._taken = 0
        page.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)

    def open(self, path: str) -> None:
        self.page.goto(f"{self._url}/{path}")

    def screenshot(self, name: str, *, whole: bool = False) -> None:
        # What moves into its place has a moment to get there.
        self.page.wait_for_timeout(500)
        self._taken += 1
        path = self._screenshots / f"{self._taken:02}-{name}.png"
        if not whole:
            self.page.screenshot(path=path)
            return
        size = self.page.viewport_size
        assert size is not None
        # The page scrolls within itself, so the window has to grow.
        height = self.page.evaluate("Math.max(...[...document.querySelectorAll('*')].map(e => e.scrollHeight))")
        self.page.set_viewport_size({"width": size["width"], "height": height})
        self.page.wait_for_timeout(500)
        self.page.screenshot(path=path)
        self.page.set_viewport_size(size)

    def log_in(self, secret: str) -> None:
        field = self.page.get_by_placeholder("admin:pass")
        field.fill(secret)
        self.screenshot("log-in")
        field.press("Enter")

    def start_run(self, deployment: str, fill_in: Callable[[], None]) -> None:
        """Starts a run of a deployment by the form, which ``fill_in`` fills in, and opens its page."""
        self.open_deployment(deployment)
        expect(self.page.get_by_text("No runs found")).to_be_visible()
        self.screenshot("deployment")
        self.page.get_by_role("button", name="Run", exact=True).click()
        self.page.get_by_text("Custom run").click()
        fill_in()
        self.send_form()
        self.open_started(deployment)

    def open_started(self, deployment: str) -> None:
        run = self.page.locator("a[href*='/runs/flow-run/']").first
        try:
            run.click(timeout=20_000)
        except TooLate:  # the message with the link is gone again; the deployment lists the run
            self.open_deployment(deployment)
            run.click()
        expect(self._state).to_be_visible()

    def open_deployment(self, name: str) -> None:
        self.open("deployments")
        self.page.get_by_role("link", name=name, exact=True).click()

    def send_form(self) -> None:
        self.page.get_by_role("button", name="Submit").click()

    def field(self, label: str) -> Locator:
        """Where something is written into a form, by what stands above it."""
        title = self.page.locator(".schema-form-property__label", has_text=re.compile(rf"^{label}( \(Optional\))?$"))
        return self.page.locator(".schema-form-property").filter(has=title).last.locator("input, textarea")

    def choose(self, item: str) -> None:
        self.page.locator("[class*=page-heading] button:has(svg)").last.click()
        self.page.locator(".p-overflow-menu-item", has_text=item).click()

    @property
    def run_name(self) -> Locator:
        return self.page.locator(".flow-run-name-input input")

    def tab(self, name: str) -> None:
        self.page.locator("li.p-tab", has_text=re.compile(f"^{name}$")).click()

    @property
    def text(self) -> str:
        return self.page.locator("body").inner_text()

    def wait_for_end(self) -> str:
        expect(self._state).to_have_text(re.compile("|".join(_ENDS)), timeout=RUN_PATIENCE)
        return self._state.inner_text().strip()

    def stages(self) -> list[tuple[str, str]]:
        """The task runs that the page lists, the newest first: the name and the state of each."""
        self.tab("Task Runs")
        rows = self.page.locator(".state-list-item")
        expect(rows.first).to_be_visible()
        found = (row.inner_text().split("\n") for row in rows.all())
        return [(lines[0], lines[1]) for lines in found]

    @property
    def _state(self) -> Locator:
        return self.page.locator(".page-heading-flow-run__meta .state-badge").first

    def retry(self) -> None:
        buttons = self.page.get_by_role("button", name="Retry", exact=True)
        buttons.click()
        expect(buttons).to_have_count(2)
        self.screenshot("retry")
        buttons.last.click()
        expect(buttons).to_have_count(0)

    def cancel(self) -> None:
        self.page.get_by_role("button", name="Cancel", exact=True).click()
        self.screenshot("cancel")
        self._in_dialog("Confirm")

    def add_schedule(self, cron: str) -> None:
        self.page.get_by_role("button", name="Schedule", exact=True).click()
        dialog = self.page.locator(".p-modal")
        dialog.get_by_text("Cron", exact=True).click()
        dialog.locator("input").nth(2).fill(cron)
        self.screenshot("schedule")
        self._in_dialog("Save")

    def _in_dialog(self, button: str) -> None:
        dialog = self.page.locator(".p-modal")
        dialog.get_by_role("button", name=button).click()
        expect(dialog).to_have_count(0)
