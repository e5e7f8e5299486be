"""What differs between two runs, and is named once, at its origin."""

from __future__ import annotations

from typing import Any

import pytest
from ledger_entries import night

from podline.compare.settings import differing
from podline.documents.ledger_entry import ChangedRecords, Entry, SplitChange
from podline.ledger.recording import plain
from podline.recipes import registry


def rows(*entries: Entry, changes: Any = None) -> list[tuple[str, ...]]:
    found = differing(entries, lambda _before, _after: changes or {})
    return [(row.area, row.name, *row.values) for row in found]


def with_settings(**changes: Any) -> Entry:
    recipe = registry.override(registry.get("cifar10"), changes)
    return night(settings={"recipe": plain(recipe), "machine": {"workers": 2}})


def with_part(part: str, **changes: Any) -> Entry:
    entry = night(1)
    alike = {"settings": night(0).settings}
    return entry.model_copy(update={**alike, part: getattr(entry, part).model_copy(update=changes)})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"schedule.learning_rate": 0.123}, ["schedule.learning_rate 0.2 0.123"]),
        ({"model.l2": 0.5, "model.l2_layers": ["stem"]}, ["model.l2 0.0 0.5", "model.l2_layers none stem"]),
        (
            {"annealing": {"energy": "loss"}, "validation_share": 0.1},
            ["validation_share 0.0 0.1", "annealing none –", "annealing.energy – loss", "annealing.final – 0.01"],
        ),
    ],
)
def test_a_setting_is_named_by_its_path_with_both_values(changes, expected):
    found = [" ".join(row[1:]) for row in rows(with_settings(), with_settings(**changes)) if row[0] == "settings"]
    assert set(expected) <= set(found)
    assert all(row.split(".")[0].split()[0] in {name.split(".")[0] for name in changes} for row in found)


def test_long_values_that_differ_at_their_end_are_listed_and_cut():
    ends = (with_settings(trainable_layers=[*(f"layer{each}" for each in range(99)), end]) for end in "ab")
    [(_, name, *values)] = rows(*ends)
    assert (name, [len(value) for value in values]) == ("trainable_layers", [202, 202])


@pytest.mark.parametrize(
    "changes", [{}, {"machine": {"train_lock": "x", "workers": 2}}, {"promotion": {"rate": 0.01}}, {"keep": 9}]
)
def test_what_cannot_change_a_result_is_not_listed(changes):
    before = night(0).settings
    after = before | changes if "machine" in changes else {**before, "recipe": before["recipe"] | changes}
    assert rows(night(0), night(0, settings=after)) == []
    first, docs, code = (with_part("code", commit=commit * 40, modules=each) for commit, each in ("ax", "bx", "cy"))
    assert rows(first, docs) == [], "a commit that leaves the modules of the training as they are"
    assert rows(first, code) == [("code", "commit", "a" * 12, "c" * 12)]


NUMPY = {**night().environment.packages, "numpy": "2.5.0"}
FILES = {"podline/loop.py": "abc", "old.py": ""}
CIFAR, MNIST = "cifar10 0123456789abcdef", "mnist 0123456789abcdef"


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        # A commit's version is not another difference.
        (with_part("code", commit="badc0de" * 5, version="0.2.0"), ["code commit c0ffeec0ffee badc0debadc0"]),
        (
            with_part("code", changes=FILES),
            ["code podline/loop.py as committed abc", "code old.py as committed deleted"],
        ),
        (
            with_part("environment", packages=NUMPY, strategy="cpu:2"),
            ["environment devices 1 CPU as cpu 1 CPU as cpu:2", "environment packages.numpy 2.4.0 2.5.0"],
        ),
        (with_part("data", dataset="mnist"), [f"data dataset {CIFAR} {MNIST}"]),
        (night(0, data=None), [f"data dataset {CIFAR} –"]),
    ],
)
def test_what_produced_a_run_is_named_with_both_values(other, expected):
    assert [" ".join(row) for row in rows(night(0), other)] == expected


RELABELLED = {"train": SplitChange(relabelled=ChangedRecords(count=1, records=("train[17] cat → dog",)))}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # And no other fingerprint, source or split.
        (RELABELLED, ["data train 500 records 1 relabelled (train[17] cat → dog)"]),
        ("it is not there", ["data fingerprint 0123456789abcdef fedcba9876543210 (it is not there)"]),
        ({}, [f"data source files of the same records  {'5' * 12}"]),
    ],
)
def test_other_data_are_told_by_what_changed(changes, expected):
    other = with_part("data", fingerprint="fedcba9876543210", source="5" * 64, splits=night().data.splits)
    assert [" ".join(row) for row in rows(night(0), other, changes=changes)] == expected


def test_a_compacted_version_is_no_difference():
    other = with_part("data", fingerprint="fedcba9876543210", splits=night().data.splits)
    assert not rows(night(0), other, changes={})


def test_converters_and_installed_packages_are_told_by_what_differs_in_them():
    before = with_part("data", fingerprint="a", converter={"seed": 0, "side": 368})
    after = with_part("data", fingerprint="b", converter={"seed": 1, "side": 368})
    assert rows(before, after) == [("data", "converter.seed", "0", "1")]
    installed = [with_part("code", commit="", sources=digit * 64) for digit in "12"]
    assert rows(*installed) == [("code", "sources", "1" * 12, "2" * 12)]
