"""A day with Podline in a real browser: fill in the form, run, watch, find out why it is red, mend, Retry, read.

And an evening: cancel, copy, set a schedule, deploy again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from browsers import opened_browser
from playwright.sync_api import Page, expect
from postgres import postgres_url
from prefect_ui import PrefectUi
from standing_prefect import PROJECT, Standing, podline_up
from waiting import wait_until
from websockets import Subprotocol
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from podline.deployments.up import MARK
from podline.stages.supervision import processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1700)]

# A training that can be stopped in its middle: its progress is seen some seconds after it began.
_STEPS = 300
WINDOW = {"width": 1400, "height": 1000}
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
NAME = "a first try"
SECRET = "night:shift-7421"  # noqa: S105 (of this test's own server)


@pytest.fixture(params=["sqlite", "postgresql-with-a-secret-of-ones-own"])
def database(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    if request.param == "sqlite":
        yield {}
        return
    with postgres_url() as url:
        yield {"PREFECT_API_DATABASE_CONNECTION_URL": url, "PREFECT_SERVER_API_AUTH_STRING": SECRET}


@pytest.fixture
def screenshots(request: pytest.FixtureRequest) -> Path:
    """The folder of this test's pictures; TEST_OUTPUT says where all of them go."""
    folder = Path(os.environ.get("TEST_OUTPUT", PROJECT / "test-output")) / request.node.name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    return folder


def test_a_day(database: dict[str, str], screenshots: Path, tmp_path: Path) -> None:
    with opened_browser() as browser, podline_up(tmp_path, database) as up:
        user, _, password = up.pages_secret.partition(":")
        # What a person types into the browser's own dialog: only after it was asked for.
        context = browser.new_context(viewport=WINDOW, http_credentials={"username": user, "password": password})
        ui = PrefectUi(context.new_page(), up.url, screenshots)
        ui.open("deployments")
        ui.log_in(up.secret)
        expect(ui.page.get_by_text("sample-manual")).to_be_visible()
        ui.screenshot("deployments")

        ui.start_run("sample-manual", lambda: _fill_in(ui))
        with _damaged_while_training(ui, up):
            assert ui.wait_for_end() == "Failed"
        ui.tab("Logs")
        cause = re.compile(r"^Damaged artifact: \S*sample-test\.tfrecord\S* has 1000 bytes")
        expect(ui.page.get_by_text(cause).first).to_be_visible()
        assert "trying again in 5 s (1 of 3): killed by SIGKILL" in re.sub(r"in [4-7] s", "in 5 s", ui.text)
        for noise in ("Traceback", "Retry 1/", "cuda"):
            assert noise not in ui.text
        assert NAME in ui.text
        ui.screenshot("failed", whole=True)
        ui.tab("Details")
        ui.page.get_by_text("See More").first.click()  # of a message with so long a path
        expect(ui.page.get_by_text(cause).first).to_be_visible()
        assert dict(ui.stages())["evaluate"] == "Failed"
        ui.screenshot("failed-stages")

        ui.retry()
        expect(ui.page.get_by_text("Running", exact=True).first).to_be_visible()
        assert ui.wait_for_end() == "Completed"
        done = {"report": "Completed", "evaluate": "Completed"}
        done |= dict.fromkeys(("train", "validate", "convert"), "Cached")
        # The list of tasks is a moment behind the run.
        wait_until(lambda: ui.stages()[:5] == list(done.items()))
        ui.screenshot("completed")

        ui.tab("Artifacts")
        ui.screenshot("artifacts", whole=True)
        expect(ui.page.get_by_text(re.compile("^Report of sample-")).first).to_be_visible()
        ui.page.get_by_text("sample-report", exact=True).first.click()
        expect(ui.page.get_by_role("link", name="Open the report").first).to_be_visible()
        assert re.search(r"\d+\.\d %", ui.text)
        ui.screenshot("report", whole=True)
        _follow_links(ui, up)
        stranger = browser.new_context().new_page()
        assert stranger.request.get(f"{up.pages}/").status == httpx.codes.UNAUTHORIZED
        for path in (up.log, *(up.root / ".podline" / "logs").iterdir()):
            assert up.secret not in path.read_text(errors="replace"), path
        if database:
            _try_without_secret(up)


def test_an_evening(screenshots: Path, tmp_path: Path) -> None:
    """A run is cancelled and copied; what is set in the UI meanwhile is still there when it is deployed again."""
    with opened_browser() as browser, podline_up(tmp_path) as up:
        ui = PrefectUi(browser.new_page(viewport=WINDOW), up.url, screenshots)
        ui.open("deployments")
        ui.log_in(up.secret)
        ui.start_run("sample-manual", lambda: ui.field("Steps").fill("20000"))
        _wait_for_progress(up)
        ui.cancel()
        assert ui.wait_for_end() == "Cancelled"
        wait_until(lambda: not _children(up, "train"), seconds=120)
        assert list(up.root.glob("runs/*/checkpoints/*"))
        ui.screenshot("cancelled")

        ui.choose("Copy to new run")
        expect(ui.field("Steps")).to_have_value("20000")
        ui.field("Steps").fill("30")
        ui.run_name.fill(NAME)
        ui.screenshot("copy")
        ui.send_form()
        ui.open_started("sample-manual")
        copy = ui.page.url

        ui.open_deployment("sample-manual")
        ui.add_schedule("0 5 * * 6")
        expect(ui.page.get_by_text("At 05:00 AM, only on Saturday")).to_be_visible()
        ui.open_deployment("sample-nightly")
        ui.page.get_by_role("switch").click()
        expect(ui.page.get_by_role("switch")).not_to_be_checked()
        ui.choose("Edit")
        ui.field("Epochs").fill("7")
        ui.screenshot("edit", whole=True)
        ui.page.get_by_role("button", name=re.compile("Save|Update")).click()
        ui.page.wait_for_url(re.compile(r"/deployment/[0-9a-f-]+$"))
        deploy = up.command("deploy", PREFECT_API_URL=f"{up.url}/api", PODLINE_ROOT=str(up.root))
        assert deploy.returncode == 0, deploy.stderr

        ui.open_deployment("sample-nightly")
        expect(ui.page.get_by_role("switch")).not_to_be_checked()
        ui.tab("Parameters")
        expect(ui.page.get_by_text(re.compile(r'"epochs": 7')).first).to_be_visible()
        ui.screenshot("deployed-again")
        ui.open_deployment("sample-manual")
        expect(ui.page.get_by_text("At 05:00 AM, only on Saturday")).to_be_visible()
        ui.page.goto(copy)
        assert ui.wait_for_end() == "Completed"


def _fill_in(ui: PrefectUi) -> None:
    """Fill in some steps on the drawn sample, after a number of steps that cannot be."""
    ui.screenshot("form-first-screen")
    ui.field("Steps").fill("-60")
    ui.send_form()
    expect(ui.page.get_by_text("-60 is less than the minimum of 0").first).to_be_visible()
    ui.screenshot("refused")
    ui.field("Steps").fill(str(_STEPS))
    ui.run_name.fill(NAME)
    ui.screenshot("form", whole=True)


@contextlib.contextmanager
def _damaged_while_training(ui: PrefectUi, up: Standing) -> Iterator[None]:
    """Progress moves; the training is stopped for a moment, and when it is done, a file is cut short.

    The evaluation needs it, and has yet to start. In the end the file is whole again.
    """
    ui.tab("Artifacts")
    # Killed at its start, or later where the browser is slow, and tried again. Its process imports before that.
    begun = {"task_runs": {"name": {"any_": ["train"]}, "state": {"type": {"any_": ["RUNNING"]}}}}
    wait_until(lambda: up.ask("task_runs/filter", begun) and _children(up, "train"), seconds=600)
    killed = _child(up, "train")
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: set(_children(up, "train")) - {killed}, seconds=600)
    _wait_for_progress(up)
    child = _child(up, "train")
    os.kill(child, signal.SIGSTOP)
    try:
        moving = ui.page.get_by_text(re.compile(rf"train: \d+/{_STEPS} steps"))
        expect(moving.first).to_be_visible()
        seen = moving.first.inner_text()
        assert not seen.startswith(f"train: {_STEPS}/{_STEPS}")
        ui.screenshot("training")
    finally:
        os.kill(child, signal.SIGCONT)
    wait_until(lambda: list(up.root.glob("runs/*/stages/train.json")), seconds=600)
    shard = min(up.root.glob("datasets/sample/*/sample-test.tfrecord-*"))
    whole = shard.with_name("whole")
    shard.rename(whole)
    shard.write_bytes(whole.read_bytes()[:1000])
    yield
    # The card says what failed; the page asks for artifacts only while the run is at work.
    ui.page.reload()
    ui.tab("Artifacts")
    expect(ui.page.get_by_text(re.compile("^Failed: Damaged artifact: ")).first).to_be_visible()
    whole.rename(shard)


def _wait_for_progress(up: Standing) -> None:
    progress = {"artifacts": {"key": {"any_": ["sample-progress"]}}}
    wait_until(lambda: re.search(r"train: [1-9]", str(up.ask("artifacts/filter", progress))), seconds=600)


def _child(up: Standing, stage: str) -> int:
    """The process that does a stage of this server's run; others on the machine may do the same stage."""
    (found,) = _children(up, stage)
    return found


def _children(up: Standing, stage: str) -> list[int]:
    ours = processes.marked(MARK, str(up.folder))
    wanted = f"podline.stages.supervision.child\0{stage}\0"
    return [process for process in ours if wanted in Path(f"/proc/{process}/cmdline").read_text()]


def _follow_links(ui: PrefectUi, up: Standing) -> None:
    """From the artifact to the report, to all nights and back; from the deployment to all nights."""
    page = _opened(ui, "Open the report")
    for _ in range(2):
        expect(page.locator("h1")).to_contain_text("labelled correctly")
        page.get_by_role("link", name="all nights").click()
        page.wait_for_url("**/index.html")
        page.get_by_role("link", name=re.compile("^sample-")).first.click()
        page.wait_for_url("**/report.html")
    expect(_opened(ui, "all nights").locator("h1")).to_contain_text("run")
    ui.open_deployment("sample-manual")
    ui.tab("Description")
    ui.screenshot("description")
    page = _opened(ui, "All nights")

    # What is on a page can do nothing to the API: to the browser it is no page of the server's.
    assert page.evaluate("window.origin") == "null"
    assert set(page.evaluate(ATTACK, f"{up.url}/api").values()) == {"TypeError"}
    # Nor can a page of another server, in the browser that knows the secret.
    page.route("http://127.0.0.1:8888/**", lambda route: route.fulfill(body="<body>", content_type="text/html"))
    page.goto("http://127.0.0.1:8888/page")
    for api in (f"{up.url}/api", f"{up.url.replace('127.0.0.1', 'localhost')}/api"):
        assert set(page.evaluate(ATTACK, api).values()) <= {0, "TypeError", 401}
    read = "url => fetch(url, {credentials: 'include'}).then(answer => answer.status, error => error.name)"
    assert page.evaluate(read, f"{up.pages}/") == "TypeError"
    assert [flow for flow in up.ask("flows/filter", {}) if flow["name"].startswith("page-")] == []


def _opened(ui: PrefectUi, text: str) -> Page:
    link = ui.page.get_by_role("link", name=re.compile(re.escape(text))).first
    expect(link).to_be_visible()
    with ui.page.context.expect_page() as opened:
        link.click()
    opened.value.wait_for_load_state()
    return opened.value


def _try_without_secret(up: Standing) -> None:
    """Every call is refused, over HTTP and over the sockets that events come and go through; so is `podline deploy`."""
    refused = httpx.codes.UNAUTHORIZED
    assert httpx.get(f"{up.url}/api/admin/settings").status_code == refused
    assert httpx.post(f"{up.url}/api/flow_runs/filter", json={}).status_code == refused
    assert httpx.post(f"{up.url}/api/flow_runs/filter", json={}, auth=("night", "wrong")).status_code == refused
    for path in ("events/in", "events/out", "logs/out"):
        # The way Prefect's clients ask.
        with connect(f"{up.url.replace('http', 'ws')}/api/{path}", subprotocols=[Subprotocol("prefect")]) as asked:
            asked.send(json.dumps({"type": "auth", "token": "night:wrong"}))
            with pytest.raises(ConnectionClosedError, match="Invalid token"):
                asked.recv(timeout=60)

    home = str(up.root.parent / "home")
    there = {"PREFECT_API_URL": f"{up.url}/api", "PREFECT_HOME": home, "PODLINE_PAGES_URL": up.pages}
    deploy = ("deploy", "--project", str(PROJECT))
    without = up.command(*deploy, **there)
    assert without.returncode == 2
    assert re.fullmatch(
        r"podline: error: .* asks for a secret: PREFECT_API_AUTH_STRING is not set; .*\n", without.stderr
    )
    with_it = up.command(*deploy, **there, PREFECT_API_AUTH_STRING=SECRET)
    assert with_it.returncode == 0, with_it.stderr
    assert [line for line in with_it.stdout.splitlines() if not re.search(r": as it was$|^kept ", line)] == []
