"""Every page in a real browser: valid, accessible in light and dark, wide and narrow, printed, and never online."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("nights", "poses", "comparison")]


@pytest.fixture(scope="module", params=["classifier", "index", *SLOW])
def page_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each kind of page in turn."""
    made = MADE[request.param](tmp_path_factory.mktemp("store"))
    return made.rename(made.with_name(f"{request.param}.html"))


@contextmanager
def opened(browser: Browser, file: Path, size: Mapping[str, int], scheme: str) -> Iterator[Page]:
    """A page that was loaded without a network, asked for nothing else and complained of nothing."""
    context = browser.new_context(viewport=dict(size), color_scheme=scheme, offline=True)
    context.set_default_timeout(TIMEOUT)
    page, requests, complaints = context.new_page(), list[str](), list[str]()
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(file.as_uri())
    yield page
    assert [url for url in requests if not url.startswith("data:")] == [file.as_uri()]
    assert complaints == []
    context.close()


def is_for_everybody(page: Page) -> None:
    # What is folded away is judged as well.
    page.evaluate("document.querySelectorAll('details').forEach(element => element.open = true)")
    found = Axe().run(page).response["violations"]
    assert [(entry["id"], [node["html"][:200] for node in entry["nodes"]]) for entry in found] == []


def test_a_page_is_small_and_a_strict_parser_finds_no_error(page_file: Path) -> None:
    html5lib.HTMLParser(strict=True).parse(page_file.read_text())
    assert page_file.stat().st_size < MOST_BYTES


def test_a_page_fits_a_phone_and_is_accessible_in_light(browser: Browser, page_file: Path) -> None:
    with opened(browser, page_file, PHONE, "light") as page:
        is_for_everybody(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        # A box that does not scroll may not hide what is in it either.
        clipped = """[...document.querySelectorAll('main *')].filter(element =>
            element.getBoundingClientRect().right > innerWidth + 1 && !element.closest('.scroll, pre, svg')).length"""
        assert page.evaluate(clipped) == 0


def test_a_page_is_in_order_accessible_in_dark_and_prints_black_on_white(browser: Browser, page_file: Path) -> None:
    with opened(browser, page_file, DESK, "dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        style = "(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))"
        assert page.evaluate(style) == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
        folded = """[...document.querySelectorAll('details > :not(summary)')].filter(
            element => !element.checkVisibility({contentVisibilityAuto: true})).length"""
        assert page.evaluate(folded) == 0
        page.emulate_media(media="screen", color_scheme="dark")
        is_for_everybody(page)
        assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
        levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map(element => +element.tagName[1])")
        assert (levels[0], levels.count(1)) == (1, 1)
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
        assert page.locator("main").count() == 1
        assert page.evaluate("document.documentElement.lang") == "en"
        unnamed = """[...document.querySelectorAll('th')].filter(
            element => !element.scope || !element.textContent.trim()).length"""
        assert page.evaluate(unnamed) == 0
        empty = "[...document.querySelectorAll('img')].filter(element => element.alt.length < 10).length"
        assert page.evaluate(empty) == 0


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
