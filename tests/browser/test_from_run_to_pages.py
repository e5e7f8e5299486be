"""From a run to its report, to all nights and back, in a real browser, which asks for the pages' secret once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browsers import opened_browser
from playwright.sync_api import Page, expect
from prefect_ui import PrefectUi
from standing_prefect import podline_up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

# What a page tries on the API of the server that it came from, with what the browser was told for the pages.
ATTACK = """
async api => {
  const told = {};
  const send = (way, how) => fetch(`${api}/flows/`, {method: "POST", body: JSON.stringify({name: way}), ...how})
    .then(answer => { told[way] = answer.status; }, error => { told[way] = error.name; });
  await send("page-json", {credentials: "include", headers: {"Content-Type": "application/json"}});
  await send("page-blind", {credentials: "include", mode: "no-cors"});
  await fetch(`${api}/admin/version`, {credentials: "include"})
    .then(answer => { told.read = answer.status; }, error => { told.read = error.name; });
  return told;
}
"""


def test_from_a_run_to_its_report_to_all_nights_and_back(screenshots: Path, tmp_path: Path) -> None:
    with opened_browser() as browser, podline_up(tmp_path) as up:
        user, _, password = up.pages_secret.partition(":")
        window = {"width": 1400, "height": 1000}
        # What a person types into the browser's own dialog: only after it was asked for.
        context = browser.new_context(viewport=window, http_credentials={"username": user, "password": password})
        ui = PrefectUi(context.new_page(), up.url, screenshots)
        ui.open("deployments")
        ui.log_in(up.secret)
        ui.start_run("sample-manual", lambda: ui.field("Steps").fill("30"))
        assert ui.wait_for_end() == "Completed"

        ui.tab("Artifacts")
        expect(ui.page.get_by_text(re.compile("^Report of sample-")).first).to_be_visible()
        ui.screenshot("artifacts", whole=True)
        run = ui.page.url
        # The report's artifact leads to its page and to all nights; the page to all nights, and these to the report.
        for name, link in (("report.html", "Open the report"), ("index.html", "all nights")):
            ui.page.goto(run)
            ui.tab("Artifacts")
            ui.page.get_by_text("sample-report", exact=True).first.click()
            page = _opened(ui, link)
            _there_and_back(page, name)
            page.screenshot(path=screenshots / f"{name}.png")
        # From the deployment as well.
        ui.open("deployments")
        ui.page.get_by_role("link", name="sample-manual", exact=True).click()
        ui.tab("Description")
        expect(ui.page.get_by_role("link", name="All nights")).to_be_visible()
        ui.screenshot("description")
        page = _opened(ui, "All nights")
        expect(page.locator("h1")).to_contain_text("1 run")

        _look_for_ways_to_the_api(page, up.url)
        # A page of another server, in the browser that knows the secret.
        page.route("http://127.0.0.1:8888/**", lambda route: route.fulfill(body="<body>", content_type="text/html"))
        page.goto("http://127.0.0.1:8888/page")
        for api in (f"{up.url}/api", f"{up.url.replace('127.0.0.1', 'localhost')}/api"):
            assert set(page.evaluate(ATTACK, api).values()) <= {0, "TypeError", 401}
        read = "url => fetch(url, {credentials: 'include'}).then(answer => answer.status, error => error.name)"
        assert page.evaluate(read, f"{up.pages}/") == "TypeError"
        assert [flow for flow in up.ask("flows/filter", {}) if flow["name"].startswith("page-")] == []

        # Whoever does not know the secret sees nothing.
        stranger = browser.new_context().new_page()
        answer = stranger.request.get(f"{up.pages}/")
        assert answer.status == 401


def _opened(ui: PrefectUi, text: str) -> Page:
    """The tab that a click on a link opens."""
    link = ui.page.get_by_role("link", name=re.compile(re.escape(text))).first
    expect(link).to_be_visible()
    with ui.page.context.expect_page() as opened:
        link.click()
    opened.value.wait_for_load_state()
    return opened.value


def _there_and_back(page: Page, name: str) -> None:
    """From a report to the index, or from the index to a report, and back by the page's own links."""
    to_index, to_report = (
        page.get_by_role("link", name="all nights"),
        page.get_by_role("link", name=re.compile("^sample-")),
    )
    for _ in range(2):
        if page.url.endswith("report.html"):
            expect(page.locator("h1")).to_contain_text("labelled correctly")
            to_index.click()
            page.wait_for_url("**/index.html")
        else:
            expect(page.locator("h1")).to_contain_text("1 run")
            to_report.first.click()
            page.wait_for_url("**/report.html")
    assert page.url.endswith(name)


def _look_for_ways_to_the_api(page: Page, url: str) -> None:
    """What is on a page can do nothing to the API: to the browser it is no page of the server's."""
    assert page.evaluate("window.origin") == "null"
    told = page.evaluate(ATTACK, f"{url}/api")
    assert set(told.values()) == {"TypeError"}
