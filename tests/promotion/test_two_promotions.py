"""Two different promotions at once: one wins, the other is told, and wins when it is given again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_dataset import FINGERPRINT, publish_dataset

from podline.documents import champions
from podline.documents.promotion import read_promotion
from podline.evaluation.evaluate import evaluate
from podline.inventory.verification import verify
from podline.progress import silent
from podline.recipes.durations import Duration
from podline.recipes.settings import ModelSettings, Recipe, ScheduleSettings
from podline.stages.specs import EvaluateSpec, TrainSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.train import train


def trained(root: str, seed: int) -> str:
    """A run that was trained and evaluated; its name."""
    recipe = Recipe(
        name="t",
        dataset="sample",
        model=ModelSettings(kind="linear"),
        schedule=ScheduleSettings(kind="constant", learning_rate=0.01),
        duration=Duration(epochs=6),
        batch_size=32,
        seed=seed,
        evaluate_every=None,
    )
    result = train(TrainSpec(root=root, recipe=recipe, fingerprint=FINGERPRINT, preflight=False), silent())
    judged = {"run": result.run, "dataset": "sample", "weights_sha256": result.weights_sha256}
    evaluate(EvaluateSpec.model_validate({"root": root, "fingerprint": FINGERPRINT, **judged}), silent())
    return result.run


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
    runs, gate = [trained(root, seed) for seed in (0, 1)], tmp_path / "gate"
    gate.mkdir()
    both = [start(str(Path(__file__).with_name("promoting.py")), root, run, str(gate)) for run in runs]
    told = [each.communicate(timeout=250) for each in both]
    assert [each.returncode for each in both] == [0, 0], told
    assert sorted(line.split(":")[0].strip() for line, _ in told) == ["told", "won"], [line for line, _ in told]
    winner, loser = sorted(runs, key=lambda run: told[runs.index(run)][0] != "won\n")
    message = told[runs.index(loser)][0]
    assert message.startswith(f"told: t: {loser} was judged against no champion, and meanwhile {winner} became")
    store = open_store(root)
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


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_commands_that_promote_at_once_leave_a_whole_history(root: str) -> None:
    publish_dataset(root, train=256, test=120)
    runs, store = [trained(root, seed) for seed in range(4)], open_store(root)
    for first, second in ((0, 1), (2, 3)):
        pair = [runs[first], runs[second]]
        before = runs_of_champions(store)
        both = [start("-m", "podline.cli", "models", "promote", run, "--root", root) for run in pair]
        said = [each.communicate(timeout=250)[1] for each in both]
        codes = [each.returncode for each in both]
        assert "Traceback" not in "".join(said)
        # One of them is told (75) if both were judged against the same champion; both win if they came one by one.
        assert sorted(codes) in ([0, 75], [0, 0]), said
        won = [run for run, code in zip(pair, codes, strict=True) if code == 0]
        assert sorted(runs_of_champions(store)[len(before) :]) == sorted(won)
    assert verify(store, silent())[1] == []
