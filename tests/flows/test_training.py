"""The flow does again what is damaged or depends on it and no more, and its server shows what came of it."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect_servers import artifacts_of, tasks_of
from small_flow_stages import ran

from podline.base.errors import SanityError
from podline.data.people import sample as coco_sample
from podline.data.sources.sample import write_sample
from podline.documents.champions import history
from podline.documents.ledger_entry import Entry
from podline.flows.training import training
from podline.ledger.inventory.catalogue import training_of
from podline.ledger.ledger import entries, names
from podline.stages.from_recipe import training_spec
from podline.store.opening import open_store
from podline.tasks.forms import DataGroup, MachineGroup, TrainingForm, TrainingGroup

ALL = ["convert", "validate", "train", "evaluate", "report"]

pytestmark = pytest.mark.usefixtures("prefect_server")
stages_here = pytest.mark.usefixtures("stages_here")


@pytest.fixture
def parameters(tmp_path: Path, small_stages: None) -> TrainingForm:
    """The flow's parameters for a tiny sample; its stages are small ones from here on."""
    write_sample(tmp_path / "drawn", train=50, test=20)
    return TrainingForm(
        recipe="sample",
        source=str(tmp_path / "drawn"),
        training=TrainingGroup(steps=1),
        machine=MachineGroup(root=str(tmp_path / "root")),
    )


def newest_run() -> tuple[Any, dict[str, str | None], dict[str | None, Any]]:
    """The last flow run, the states of its task runs by name, its artifacts by key."""
    with get_client(sync_client=True) as client:
        run = max(client.read_flow_runs(), key=lambda run: run.created)
        return run, {task.name: task.state_name for task in tasks_of(client, run.id)}, artifacts_of(client, run.id)


def ledger_of(root: str) -> list[Entry]:
    store = open_store(root)
    return sorted(entries(store, names(store)), key=lambda entry: -entry.ended)


def reused(answer: dict[str, Any]) -> list[str]:
    return [name for name, stage in answer["stages"].items() if stage["reused"]]


def test_a_second_run_finds_everything_and_says_so(parameters: TrainingForm) -> None:
    first = training(parameters)
    run, states, artifacts = newest_run()
    assert ran(parameters.machine.root) == ALL
    assert states == dict.fromkeys(ALL, "Completed")
    assert run.name.startswith("sample 20")
    # No server serves the store.
    opens = f"Open the report: `{first['report']}`"
    named = {name: artifact.data for name, artifact in artifacts.items() if name}
    assert set(named) == {"sample-progress", "sample-key-figures", "sample-report"}
    assert [name for name, text in named.items() if not text.startswith(opens)] == []
    assert "\n# It went well\n" in artifacts["sample-report"].data
    assert "50.0 % [40.0, 60.0]" in str(artifacts["sample-key-figures"].data)
    assert re.findall(r"^\| (\w+) \| 100 % \| ", artifacts["sample-progress"].data, re.MULTILINE) == ALL
    index = Path(parameters.machine.root) / "index.html"
    assert f"`{index}`" in artifacts["sample-report"].data
    assert "<h1>" in index.read_text()
    assert first["metrics"] == {"top1": {"value": 0.5, "low": 0.4, "high": 0.6}}
    assert Path(first["report"]).read_text() == "<p>fine</p>"
    assert list(first["stages"]) == ALL
    assert reused(first) == []

    second = training(parameters)
    assert ran(parameters.machine.root) == ALL
    assert newest_run()[1] == dict.fromkeys(ALL, "Cached")
    assert reused(second) == ALL
    assert second["stages"]["train"]["seconds_when_made"] == 1.0
    assert second["stages"]["train"]["seconds"] < 5.0

    now, before = ledger_of(parameters.machine.root)
    assert (before.state, now.state) == ("finished", "finished")
    assert before.run == now.run == first["run"]
    assert [name for name, stage in now.stages.items() if stage.reused] == ALL
    assert {name: stage.model_dump() for name, stage in before.stages.items()} == first["stages"]
    assert (now.flow_run, now.attempt) == (str(newest_run()[0].id), 1)
    assert now.overridden == {"duration.steps": 1}


@stages_here
def test_what_is_deleted_or_damaged_is_made_again_with_what_depends_on_it(parameters: TrainingForm) -> None:
    root, drawn = Path(parameters.machine.root), Path(parameters.source)
    answer = training(parameters)
    folder = root / "runs" / answer["run"]

    (folder / "report.html").unlink()
    assert reused(training(parameters)) == ["convert", "validate", "train", "evaluate"]
    assert newest_run()[1] == {**dict.fromkeys(ALL, "Cached"), "report": "Completed"}

    # The same weights again: what was made of them is still right.
    (folder / "weights").write_bytes(b"wrights")
    assert reused(training(parameters)) == ["convert", "validate", "evaluate", "report"]

    # Other weights: it is not.
    (root / "next-weights").write_bytes(b"other weights")
    (folder / "weights").unlink()
    assert reused(training(parameters)) == ["convert", "validate"]

    # A shard: the conversion writes the same bytes again, so the training is still right.
    shard = next(root.glob("datasets/sample/*/shard"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert reused(training(parameters)) == ["validate", "train", "evaluate", "report"]
    assert shard.read_bytes() == whole

    # Other data in the same place are other data.
    shutil.rmtree(drawn)
    write_sample(drawn, train=50, test=20, seed=1)
    other = training(parameters)
    assert (reused(other), other["run"] == answer["run"]) == ([], False)


@stages_here
def test_a_night_decides_on_a_promotion_before_it_reports_and_once(parameters: TrainingForm) -> None:
    assert training(parameters)["promotion"] is None
    nightly = parameters.model_copy(update={"promote": True})
    first = training(nightly)
    assert first["promotion"] | {"verdict": "promoted", "promoted": True, "reference": ""} == first["promotion"]
    assert list(first["stages"]) == ["convert", "validate", "train", "evaluate", "promote", "report"]
    assert reused(first) == ["convert", "validate", "train", "evaluate"]
    # A first champion brings two more seeds, once.
    assert ran(nightly.machine.root)[len(ALL) :] == ["promote", *["train", "evaluate"] * 2, "report"]
    _, _, artifacts = newest_run()
    assert "champion number 1" in str(artifacts["sample-key-figures"].data)
    assert f"{first['run']}/promotion.json" in str(artifacts["sample-key-figures"].data)
    assert len(reused(training(nightly))) == 6
    assert ran(nightly.machine.root).count("train") == 3
    assert [entry.run for entry in history(open_store(nightly.machine.root), "sample")] == [first["run"]]


@stages_here
@pytest.mark.usefixtures("small_stages")
def test_without_a_source_people_are_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coco_sample, "write_coco_sample", partial(coco_sample.write_coco_sample, train=5, test=1))
    root, few = str(tmp_path / "root"), DataGroup(allow_left_out=1)
    # The small conversion counts no images by which values could be chosen.
    fixed = TrainingGroup(assignments=("fit=null", "task.model.width=0.4"))
    parameters = TrainingForm(recipe="coco_pose", data=few, training=fixed, machine=MachineGroup(root=root))
    first, second = training(parameters), training(parameters)
    assert ran(root) == ALL
    assert first["run"] == second["run"]
    assert reused(second) == ALL
    assert len(list(Path(root, "sources/coco_sample/train2017").iterdir())) == 6


def changed(parameters: TrainingForm, **training: Any) -> TrainingForm:
    """The parameters of a night whose training differs so."""
    group = parameters.training.model_copy(update=training)
    return parameters.model_copy(update={"promote": True, "training": group})


def undecided(parameters: TrainingForm, **rules: float) -> TrainingForm:
    """The parameters of a night whose model is undecided until four runs are evaluated; a champion is there."""
    training(changed(parameters, assignments=("promotion.seeds=0",)))
    Path(parameters.machine.root, "known").write_text("4")
    Path(parameters.machine.root, "ran").unlink()
    settings = [f"promotion.{name}={value}" for name, value in rules.items()]
    return changed(parameters, seed=7, assignments=tuple(settings))


@stages_here
def test_an_undecided_night_trains_the_seeds_that_decide_as_runs_of_their_own(parameters: TrainingForm) -> None:
    night = undecided(parameters, seeds=3)
    store = open_store(night.machine.root)
    answer = training(night)
    seed = ["train", "evaluate"]
    assert ran(night.machine.root) == [*seed, "promote", *seed, *seed, "promote", "report"]
    assert answer["promotion"]["verdict"] == "promoted"
    run, tasks, _ = newest_run()
    assert set(tasks) >= {f"{stage}, seed {number}" for stage in seed for number in (1, 2)}
    told = {entry.run: entry for entry in ledger_of(night.machine.root)}
    data = training_of(store, answer["run"]).fingerprint
    recipes = [changed(parameters, seed=number).training_recipe() for number in (1, 2)]
    as_commands = [training_spec(store, recipe, data, "auto").run for recipe in recipes]
    assert [told[run].seeds["recipe"] for run in as_commands] == [1, 2]
    assert {told[run].flow_run for run in as_commands} == {str(run.id)}
    decision = told[answer["run"]].promotion
    assert decision is not None
    assert (decision.verdict, decision.reason) == ("promoted", "")
    assert decision.reference
    # The night after finds the verdict, and trains nothing.
    assert len(reused(training(night))) == 6


@stages_here
def test_what_no_minutes_are_left_for_the_next_night_goes_on_with(parameters: TrainingForm) -> None:
    short = undecided(parameters, seeds=1, seed_minutes=0.001)
    assert training(short)["promotion"]["verdict"] == "undecided"
    assert ran(short.machine.root) == ["train", "evaluate", "promote", "report"]
    longer = changed(short, assignments=("promotion.seeds=1",))
    assert training(longer)["promotion"]["doubt"] == "what would decide: 1 more"
    assert training(longer)["promotion"]["verdict"] == "promoted"
    assert ran(short.machine.root).count("train") == 3


@stages_here
def test_a_model_that_fails_its_check_has_a_report_and_no_promotion_and_the_run_fails(parameters: TrainingForm) -> None:
    root = Path(parameters.machine.root)
    root.mkdir()
    (root / "learn-nothing").touch()
    for _ in range(2):  # found done, it fails its check all the same
        with pytest.raises(SanityError, match=r"no better than guessing; the report: .*/report\.html"):
            training(parameters.model_copy(update={"promote": True}))
    card = newest_run()[2]["sample-progress"]
    assert card.description.startswith("Failed: No better than guessing: ")
    said, advice, opens, _table = card.data.split("\n\n")
    assert said.startswith("**Failed.** No better than guessing: ")
    assert advice.startswith("**What to do:** look at the report")
    assert opens.startswith("Open the report: `")
    assert ran(str(root)) == ["convert", "validate", "train", "evaluate", "report"]
    assert [entry.state for entry in ledger_of(str(root))] == ["failed", "failed"]
