"""Two different promotions at once: one wins, the other is told, and wins when it is given again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_dataset import publish_dataset
from trained_runs import trained

from podline.documents import champions
from podline.documents.promotion import read_promotion
from podline.inventory.verification import verify
from podline.progress import silent
from podline.store.contract import Store
from podline.store.opening import open_store


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )


@pytest.fixture(params=["folder", "bucket"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "root") if request.param == "folder" else request.getfixturevalue("gcs_root")


def runs_of_champions(store: Store) -> list[str]:
    """The history, which has no hole."""
    entries = champions.history(store, "t")
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
    return [entry.run for entry in entries]


@pytest.mark.slow
def test_of_two_promotions_at_once_one_wins_and_the_other_wins_later(root: str, tmp_path: Path) -> None:
    publish_dataset(root, train=256, test=120)
    store, gate = open_store(root), tmp_path / "gate"
    runs = [trained(store, seed) for seed in (0, 1)]
    gate.mkdir()
    both = [start(str(Path(__file__).with_name("promoting.py")), root, run, str(gate)) for run in runs]
    told = [each.communicate(timeout=250) for each in both]
    assert [each.returncode for each in both] == [0, 0], told
    assert sorted(line.split(":")[0].strip() for line, _ in told) == ["told", "won"], [line for line, _ in told]
    winner, loser = sorted(runs, key=lambda run: told[runs.index(run)][0] != "won\n")
    message = told[runs.index(loser)][0]
    assert message.startswith(f"told: t: {loser} was judged against no champion, and meanwhile {winner} became")
    assert runs_of_champions(store) == [winner]
    assert read_promotion(store, f"runs/{loser}") is None
    # As a person would, by the command.
    again = start("-m", "podline.cli", "models", "promote", loser, "--root", root)
    assert (again.communicate(timeout=250)[1].count("Traceback"), again.returncode) == (0, 0)
    assert runs_of_champions(store) == [winner, loser]
    decided = read_promotion(store, f"runs/{loser}")
    assert decided is not None
    assert (decided.number, decided.against) == (2, winner)
    assert verify(store, silent())[1] == []
