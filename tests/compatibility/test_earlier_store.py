"""A store that version 0.1 made: it is whole, what is done is found, and a training that was killed goes on.

``store-0.1.tar.gz`` was made with the commands of ``FINISHED`` and ``KILLED``; the second was killed after step 10.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

ARCHIVE = Path(__file__).with_name("store-0.1.tar.gz")
SHARED = ("sample", "--batch-size", "16", "--set", "deterministic=true")
FINISHED = (*SHARED, "--steps", "40", "--model", "linear", "--learning-rate", "0.01", "--set", "checkpoint_steps=40")
KILLED = (*SHARED, "--steps", "200", "--set", "model.width=0.1", "--set", "checkpoint_steps=10")
RUN = "sample-27d5bc4de825"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The store of the earlier version, unpacked."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "store"


def podline(root: Path, *arguments: str) -> Any:
    """The document that a command prints about a store."""
    command = [sys.executable, "-m", "podline.cli", *arguments, "--root", str(root), "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout)


def test_it_is_whole_but_for_the_training_that_was_killed(root: Path) -> None:
    [problem] = podline(root, "store", "verify")["problems"]
    assert "sample-672ecaa085df is not finished" in problem


def test_all_stages_of_the_finished_run_are_found_done(root: Path) -> None:
    assert podline(root, "validate", "sample")["reused"]
    # The report is older than the promotion that it would show today.
    for stage in ("train", "evaluate"):
        assert podline(root, stage, *FINISHED)["reused"], stage


def test_ledger_and_champion_are_read(root: Path) -> None:
    [entry] = podline(root, "runs", "list")
    assert (entry["run"], entry["state"]) == (RUN, "finished")
    [champion] = podline(root, "models", "list")
    assert champion["run"] == RUN


def test_the_killed_training_goes_on_and_ends_with_the_weights_of_an_undisturbed_one(root: Path) -> None:
    resumed = podline(root, "train", *KILLED)
    assert (resumed["run"], resumed["resumed_from"]) == ("sample-672ecaa085df", [10])
    undisturbed = root.with_name("undisturbed")
    (undisturbed / "datasets").parent.mkdir()
    (root / "datasets").rename(undisturbed / "datasets")
    anew = podline(undisturbed, "train", *KILLED)
    assert (anew["run"], anew["resumed_from"]) == (resumed["run"], [])
    assert anew["weights_sha256"] == resumed["weights_sha256"]
