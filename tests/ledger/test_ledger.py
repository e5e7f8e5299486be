"""An entry is found by name, moment and content, and a table says what entries say."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from ledger_entries import DAY, NOON, night

from podline.base.errors import ArtifactError, StoreError
from podline.documents.ledger_entry import ChangedRecords, DataChange, PromotionSummary, SplitChange
from podline.documents.metric import Metric
from podline.ledger import ledger
from podline.ledger.alike import same_but_for_seed
from podline.ledger.ledger import entry_of, names, publish
from podline.recipes.measures import Measure, known
from podline.report import ledger as reporting_ledger
from podline.report.ledger import columns, frame_of, load
from podline.store.folder import FolderStore
from podline.store.opening import open_store


def moment(day: int) -> datetime:
    return datetime.fromtimestamp(NOON + day * DAY, UTC)


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path)


def test_names_tell_moment_recipe_and_state_without_a_look_inside(store, monkeypatch):
    for entry in (night(0), night(1, recipe="coco_pose"), night(2, state="failed"), night(3, state="cancelled")):
        publish(store, entry)
    foreign = ["ledger/README.txt", ledger.file_of(night(0).name).removesuffix(".json")]
    for name in foreign:
        store.publish_bytes(name, b"what somebody put there")
    assert sorted(ledger.foreign(store)) == sorted(foreign)
    monkeypatch.setattr(FolderStore, "read_bytes", lambda *_: pytest.fail("read an entry"))
    assert [(named.recipe, named.state, named.ended) for named in names(store)] == [
        ("cifar10", "cancelled", NOON + 3 * DAY),
        ("cifar10", "failed", NOON + 2 * DAY),
        ("coco_pose", "finished", NOON + DAY),
        ("cifar10", "finished", NOON),
    ]
    assert [named.state for named in names(store, recipe="cifar10", since=moment(1))] == ["cancelled", "failed"]
    assert [named.recipe for named in names(store, until=moment(1))] == ["cifar10"]
    assert [named.ended for named in names(store, state="failed")] == [NOON + 2 * DAY]


def test_a_table_has_the_runs_of_a_data_set_or_a_commit(store):
    old = night(0).code.model_copy(update={"commit": "badcafe"})
    written = [night(0, code=old), night(1), night(2, recipe="coco_pose")]
    for entry in written:
        publish(store, entry)
    for filters, places in (
        ({"dataset": "coco_pose"}, [2]),
        ({"dataset": "0123"}, [0, 1, 2]),
        ({"commit": "bad"}, [0]),
    ):
        assert list(load(store.uri, **filters)["name"]) == [written[place].name for place in places]


def test_the_frame_has_every_column_with_its_dtype_whatever_is_in_it(store):
    dtypes = {column.name: column.dtype for column in columns()}
    assert {name: str(dtype) for name, dtype in load(store.uri).dtypes.items()} == dtypes
    publish(store, night(0, state="failed", data=None, stages={}))
    publish(store, night(1))
    frame = load(store.uri)
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == dtypes
    assert list(frame["state"]) == ["failed", "finished"]
    assert frame["top1"].isna().tolist() == [True, False]


def test_a_measure_with_the_name_of_a_column_has_a_column_of_its_own(monkeypatch):
    monkeypatch.setitem(known(), "seconds", Measure("seconds", "seconds", compute=lambda _: 0.0))
    metrics = {**night().outcome.metrics, "seconds": Metric(value=7.0, low=6.0, high=8.0)}
    frame = frame_of([night(outcome=night().outcome.model_copy(update={"metrics": metrics}))])
    assert frame[["seconds", "outcome.metrics.seconds.value", "seconds_low"]].iloc[0].tolist() == [600.0, 7.0, 6.0]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"seed": 1, "new_field": 3}, {"seed": 2}, True),
        ({"model": {"options": {}}}, {"model": {"options": {"heads": 8}}}, False),
        ({"conversion": {}}, {"conversion": {"side": 64}}, False),
        ({"model": {"width": 1.0, "newer": 1}}, {"model": {"width": 1.0}}, True),
    ],
)
def test_free_options_that_one_run_has_are_other_settings_and_fields_of_a_newer_version_are_not(one, other, same):
    assert same_but_for_seed({"name": "r", **one}, {"name": "r", **other}) is same


def test_the_frame_says_what_the_entry_says():
    change = {"train": SplitChange(added=ChangedRecords(count=3), relabelled=ChangedRecords(count=1))}
    data = night().data
    changed = data.model_copy(update={"change": DataChange(before="a", fingerprint="b", splits=change)})
    undecided = PromotionSummary(verdict="undecided", reason="too few trainings")
    entry, plain = night(5, data=changed, promotion=undecided), night(5)
    row = frame_of([entry]).iloc[0]
    top1 = entry.outcome.metrics["top1"]
    expected = {
        "value": top1.value,
        "low": top1.low,
        "top1": top1.value,
        "top1_high": top1.high,
        "worst_part": "cat",
        "ended": pd.Timestamp("2026-11-26T12:00:00Z"),
        "waiting": 3.0,
        "waiting.tpu": 2.0,
        "data.change.splits.train.added.count": 3,
        "train_records": 500,
        "data.splits.test.records": 100,
        "overridden": "seed=5",
        "seed": 5,
        "stages.convert.reused": False,
        "verdict": "undecided",
        "promotion.reason": "too few trainings",
    }
    assert {name: row[name] for name in expected} == expected
    assert pd.isna(frame_of([plain]).iloc[0]["verdict"])


def test_the_documented_lines_read_the_ledger(store):
    for number in range(3):
        publish(store, night(number))
    publish(store, night(4, state="failed", outcome=None, training=None))
    page = (
        (Path(__file__).parents[2] / "docs" / "reference" / "ledger.md").read_text().replace("podline-root", store.uri)
    )
    lines = {line.split("(")[0]: line for line in page.splitlines()}
    names = {"ledger": reporting_ledger, "duckdb": pytest.importorskip("duckdb")}
    exec(lines["nights = ledger.load"], names)  # noqa: S102 (a line of our docs)
    found = eval(lines["duckdb.sql"], names).fetchall()  # noqa: S307 (likewise)
    frame = names["nights"].astype({"top1": object})
    expected = frame[["name", "state", "top1"]].where(frame.notna(), None).itertuples(index=False, name=None)
    assert sorted(found) == sorted(expected)
    assert len(found) == 4


def test_an_entry_is_found_by_its_name_or_by_its_run_the_newest_first(store):
    first, again, other = night(0), night(1, run=night(0).run), night(2)
    for entry in (first, again, other):
        publish(store, entry)
    assert entry_of(store, first.name[:-4]) == first
    assert entry_of(store, night(0).run) == again
    assert entry_of(store, other.run[:-1]) == other
    with pytest.raises(StoreError, match="no run has ended in this store"):
        entry_of(open_store(store.uri + "/other"), "any")
    with pytest.raises(StoreError, match="0 entries and no run have a name that begins with mnist"):
        entry_of(store, "mnist")
    store.publish_json(ledger.file_of(first.name), {**first.model_dump(mode="json"), "began": "never"}, replace=True)
    with pytest.raises(ArtifactError, match=rf"{first.name}\.json is not an entry.*began.*delete it"):
        entry_of(store, first.name)
