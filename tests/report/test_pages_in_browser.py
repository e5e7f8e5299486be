"""Every page in a real browser: valid, accessible in light and dark, wide and narrow, printed, and never online."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import html5lib
import pytest
from axe_playwright_python.sync_playwright import Axe
from browsers import opened_browser
from finished_nights import decided, entered, finished_nights
from finished_pose_run import finished_pose_run, shaken
from finished_run import NOON, finished_run
from ledger_entries import DAY, night, outcome
from playwright.sync_api import Browser, Page
from pose_oracle import perfect

from podline.base.progress import silent
from podline.ledger import ledger
from podline.report.comparison_page import write
from podline.report.nights_page import write_index
from podline.report.report import report
from podline.store.opening import open_store

PHONE = {"width": 360, "height": 740}
DESK = {"width": 1200, "height": 900}
TIMEOUT = 120_000
# What can be sent by mail.
MOST_BYTES = 5_000_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as browser:
        yield browser


def _classifier(folder: Path) -> Path:
    spec = finished_run(folder)
    return open_store(spec.root).local(report(spec, silent()).html)


def _nights(folder: Path) -> Path:
    first, *_, last = finished_nights(folder)
    spec = decided(last, first.run, ["cat", "dog"])
    return open_store(spec.root).local(report(spec, silent()).html)


def _index(folder: Path) -> Path:
    store = open_store(folder)
    for number in range(30):
        state = "failed" if number % 9 == 4 else "finished"
        model = outcome(0.7 + number / 200, weights_sha256=f"{number:064x}") if state == "finished" else None
        page = "runs/cifar10-0/report.html" if number % 3 else ""
        ledger.publish(store, night(number, state=state, outcome=model, report=page))
    return store.local(write_index(store))


def _comparison(folder: Path) -> Path:
    store = open_store(folder)
    runs = [entered(finished_run(folder, seed=seed), NOON + seed) for seed in range(2)]
    return store.local(write(store, runs).html)


def _poses(folder: Path) -> Path:
    better, spec = (finished_pose_run(folder, answers, seed=seed) for seed, answers in enumerate((perfect, shaken)))
    entered(better, NOON - DAY)
    return open_store(spec.root).local(report(spec, silent()).html)


MADE = {"classifier": _classifier, "nights": _nights, "poses": _poses, "comparison": _comparison, "index": _index}


@pytest.fixture(
    scope="module",
    params=[
        "classifier",
        "index",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("nights", "poses", "comparison")),
    ],
)
def page_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each kind of page in turn."""
    made = MADE[request.param](tmp_path_factory.mktemp("store"))
    return made.rename(made.with_name(f"{request.param}.html"))


@dataclass
class Visit:
    """A page that is open, and all that it did: what it asked for, what it complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture
def visit(browser: Browser, page_file: Path) -> Iterator[Any]:
    """Opens the page: ``visit(DESK, "dark")``."""
    contexts = []

    def opened(size: Mapping[str, int], scheme: str = "light") -> Visit:
        context = browser.new_context(viewport=dict(size), color_scheme=scheme, offline=True)
        context.set_default_timeout(TIMEOUT)
        contexts.append(context)
        seen = Visit(context.new_page())
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.on("console", lambda message: seen.complaints.append(message.text))
        seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        seen.page.goto(page_file.as_uri())
        return seen

    yield opened
    for context in contexts:
        context.close()


def test_a_strict_parser_finds_no_error_and_the_page_is_small(page_file: Path) -> None:
    html5lib.HTMLParser(strict=True).parse(page_file.read_text())
    assert page_file.stat().st_size < MOST_BYTES


@pytest.mark.parametrize(("size", "scheme"), [(PHONE, "light"), (DESK, "dark")], ids=["phone-light", "desk-dark"])
def test_nothing_keeps_it_from_anybody(visit: Any, size: Mapping[str, int], scheme: str) -> None:
    seen = visit(size, scheme)
    # What is folded away is judged as well.
    seen.page.evaluate("document.querySelectorAll('details').forEach(element => element.open = true)")
    found = Axe().run(seen.page).response["violations"]
    assert [(entry["id"], [node["html"][:200] for node in entry["nodes"]]) for entry in found] == []


def test_it_asks_for_nothing_complains_of_nothing_and_is_in_order(visit: Any, page_file: Path) -> None:
    seen = visit(DESK, "dark")
    assert [url for url in seen.requests if not url.startswith("data:")] == [page_file.as_uri()]
    assert seen.complaints == []
    assert seen.page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    levels = seen.page.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map(element => +element.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert seen.page.locator("main").count() == 1
    assert seen.page.evaluate("document.documentElement.lang") == "en"
    unnamed = """[...document.querySelectorAll('th')].filter(
        element => !element.scope || !element.textContent.trim()).length"""
    assert seen.page.evaluate(unnamed) == 0
    empty = "[...document.querySelectorAll('img')].filter(element => element.alt.length < 10).length"
    assert seen.page.evaluate(empty) == 0


def test_on_a_phone_nothing_sticks_out(visit: Any) -> None:
    seen = visit(PHONE)
    seen.page.evaluate("document.querySelectorAll('details').forEach(element => element.open = true)")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    # A box that does not scroll may not hide what is in it either.
    clipped = """[...document.querySelectorAll('main *')].filter(element =>
        element.getBoundingClientRect().right > innerWidth + 1 && !element.closest('.scroll, pre, svg')).length"""
    assert seen.page.evaluate(clipped) == 0


def test_it_prints_dark_on_white_with_everything_unfolded(visit: Any) -> None:
    seen = visit(DESK, "dark")
    seen.page.emulate_media(media="print")
    style = "(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))"
    assert seen.page.evaluate(style) == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
    folded = """[...document.querySelectorAll('details > :not(summary)')].filter(
        element => !element.checkVisibility({contentVisibilityAuto: true})).length"""
    assert seen.page.evaluate(folded) == 0


def test_the_lists_of_the_index_choose_its_rows_without_a_script(browser: Browser, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(12):
        recipe = "my.flowers" if number % 3 else "cifar10"
        ledger.publish(store, night(number, recipe=recipe, state="failed" if number % 4 else "finished"))
    page = browser.new_page(viewport=PHONE, java_script_enabled=False)
    page.goto(store.local(write_index(store)).as_uri())
    rows, choice = page.locator(".chosen tbody tr"), page.get_by_label
    assert rows.filter(visible=True).count() == 12
    choice("Recipe").select_option("cifar10")
    assert rows.filter(visible=True).count() == 4
    choice("Show").select_option("failed")
    assert rows.filter(visible=True).count() == 3
    choice("Recipe").select_option("all")
    assert rows.filter(visible=True).count() == 9
    page.close()
