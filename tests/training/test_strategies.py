"""Replicas, and processes that train together, take the steps of one device; see docs/how-to/strategies.md."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
import slurm_cluster
import tensorflow as tf
from dying_runs import lively_recipe, losses, training_processes, unbroken
from free_ports import free_ports
from small_dataset import FINGERPRINT, drawn, publish_dataset
from tensorflow.python.framework import config as tf_config

from podline.base.errors import PreemptedError, SettingsError, WorkerLostError
from podline.base.progress import silent
from podline.contract.kind import kind_of
from podline.data.order import TrainingOrder
from podline.data.reader import SplitReader
from podline.documents.metrics_log import StepsLine, read_events
from podline.input.pipeline import EvaluationInput, TrainingInput
from podline.kinds.classification.objective import ClassificationObjective
from podline.kinds.classification.settings import ClassificationSettings
from podline.models.build import build_model
from podline.recipes.settings import Recipe
from podline.settings.cluster import Cluster
from podline.settings.strategies import accelerators
from podline.stages.specs import TrainResult, TrainSpec
from podline.store.opening import open_store
from podline.training import devices
from podline.training.devices import batch_advice, warn_of_padding
from podline.training.schedules import build_schedule
from podline.training.state import TrainingState
from podline.training.steps import ScoringSteps, TrainingSteps
from podline.training.train import train
from podline.training.workers import gathered
from tests.support.metrics import read_metrics

BATCH, STEPS = 16, 8
# float32 sums in another order, over a few steps; what each wrong reduction does is beyond 1e-3 (see the test of it).
TOLERANCE = 1e-5

RECIPE = lively_recipe(
    batch_size=BATCH,
    model={"kind": "linear", "dropout": 0.3, "l2": 1e-2, "l2_layers": ("classifier",)},
    optimizer={"weight_decay": 1e-2, "clip_norm": 2.0},
    schedule={"kind": "constant", "learning_rate": 0.05},
    task=ClassificationSettings(label_smoothing=0.1),
    duration={"steps": STEPS},
)
MIXED = RECIPE.changed(augmentation={"crop": 0.5, "mixup": 0.4, "cutmix": 1})
# Without dropout and batch norm, as the parts of two replicas hold other examples than those of one.
IN_PARTS = RECIPE.changed(accumulate=4, model={"kind": "linear", "l2": 1e-2, "l2_layers": ("classifier",)})
RESNET = RECIPE.changed(model={"kind": "resnet", "width": 0.25, "dropout": 0.3})


@pytest.fixture(autouse=True)
def _back_to_normal():
    yield
    tf_config.disable_op_determinism()


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("root")
    publish_dataset(root)
    return root


def require_equal_copies(state: TrainingState, strategy: tf.distribute.Strategy) -> None:
    averages = state.average.variables if state.average else []
    for variable in [*state.model.variables, *state.optimizer.variables, *averages]:
        copies = {copy.numpy().tobytes() for copy in strategy.experimental_local_results(variable.value)}
        assert len(copies) == 1, variable.path


def replicas(strategy: str) -> tf.distribute.Strategy:
    return devices.prepare(0, deterministic=True, strategy=strategy)


def trained(
    root: Path, strategy: str, recipe: Recipe, steps: int = STEPS
) -> tuple[Mapping[str, np.ndarray], TrainingState]:
    """What the steps told and the state after some steps."""
    manifest = publish_dataset(root)
    made = replicas(strategy)
    with made.scope():
        model = build_model(recipe.model, (8, 8, 3), 3, [120.0] * 3, [60.0] * 3)
        state = TrainingState(model, recipe.optimizer, recipe.ema_decay)
    if not steps:
        return {}, state
    reader = SplitReader((root / "datasets" / "sample" / FINGERPRINT).joinpath, manifest, "train")
    order = TrainingOrder(len(reader), recipe.batch_size, 0)
    batches = TrainingInput(reader, manifest, ("image", "label"), order=order, augmentation=recipe.augmentation)
    parts = made.distribute_datasets_from_function(lambda context: batches.dataset(0, steps, context=context))
    schedule = build_schedule(recipe.schedule, steps, order.epochs)
    objective, size = kind_of(recipe).objective(recipe, manifest), recipe.batch_size
    taken = TrainingSteps(made, state, schedule.at, objective, parts, size, accumulate=recipe.accumulate)
    return taken.advance(steps).series, state


@pytest.mark.parametrize(
    ("strategy", "recipe"),
    [
        ("cpu:4", RECIPE),
        ("cpu:2", RESNET),
        pytest.param("cpu:4", MIXED, marks=pytest.mark.slow),
        pytest.param("cpu:2", IN_PARTS, marks=pytest.mark.slow),
    ],
    ids=["linear-4", "resnet-2", "mixed-4", "in-parts-2"],
)
def test_replicas_that_share_a_batch_take_the_steps_of_one_device(root, strategy, recipe):
    """Dropout, L2, decay, a bound on the gradient, smoothing, the average of weights and batch norm included."""
    told, alone = trained(root, "cpu", recipe)
    shared_told, shared = trained(root, strategy, recipe)
    for name, series in told.items():  # the loss, what is right, the norm of each block's gradient
        np.testing.assert_allclose(shared_told[name], series, rtol=10 * TOLERANCE, err_msg=name)
    np.testing.assert_allclose(shared_told["loss"], told["loss"], rtol=TOLERANCE)
    ours, theirs = shared.snapshot(), alone.snapshot()
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():  # the states of generators are equal
        exact = not np.issubdtype(array.dtype, np.floating)
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=0 if exact else TOLERANCE, err_msg=name)
    require_equal_copies(shared, replicas(strategy))
    assert shared.step == STEPS


@pytest.mark.parametrize("kind", [pytest.param("adafactor", marks=pytest.mark.slow), "muon"])
def test_optimizers_of_our_own_are_given_the_sum_of_the_gradients_once(root, kind):
    rate = {"kind": "constant", "learning_rate": 1e-3}
    recipe = RECIPE.changed(optimizer={"kind": kind, "clip_norm": 0.5}, schedule=rate)
    (told, _), (shared_told, shared) = trained(root, "cpu", recipe), trained(root, "cpu:2", recipe)
    np.testing.assert_allclose(shared_told["loss"], told["loss"], rtol=TOLERANCE)
    require_equal_copies(shared, replicas("cpu:2"))


def test_a_state_goes_from_any_number_of_replicas_to_any_other_bit_for_bit(root):
    snapshot = trained(root, "cpu:2", RECIPE, 3)[1].snapshot()
    for strategy in ("cpu", "cpu:4"):
        _, other = trained(root, strategy, RECIPE, 0)
        other.restore(snapshot)
        again = other.snapshot()
        assert all(again[name].tobytes() == array.tobytes() for name, array in snapshot.items())
        require_equal_copies(other, replicas(strategy))


@pytest.mark.parametrize("examples", [33, 1])
def test_an_evaluation_counts_every_example_once_whatever_the_number_of_replicas(root, examples):
    manifest = publish_dataset(root)
    reader = SplitReader((root / "datasets" / "sample" / FINGERPRINT).joinpath, manifest, "test")
    batches = EvaluationInput(reader, manifest, ("image", "label"), batch_size=15, ids=np.arange(examples))
    scores = []
    for name in ("cpu", "cpu:2", "cpu:4"):
        strategy = replicas(name)
        with strategy.scope():
            model = build_model(RECIPE.model, (8, 8, 3), 3, [120.0] * 3, [60.0] * 3)
        parts = strategy.distribute_datasets_from_function(batches.dataset)
        count = batches.batches(strategy.num_replicas_in_sync)
        scores += [ScoringSteps(strategy, model, ClassificationObjective()).score(parts, count, lambda number: True)]
    test = {field: values[:examples] for field, values in drawn(40, 1).items()}
    right = np.argmax(model(test["image"]), axis=-1) == test["label"]
    assert [score.sums["correct"] / score.examples for score in scores] == [np.mean(right)] * 3
    np.testing.assert_allclose([score.loss for score in scores], scores[0].loss, rtol=TOLERANCE)


@pytest.mark.parametrize(
    ("batch_size", "words"),
    [
        (20, "batch_size=20 .* 8 replicas .8 × cpu.*: use batch_size=16 or 24"),
        (4, "batch_size=4 .* use batch_size=8, or"),
    ],
)
def test_a_batch_that_does_not_divide_is_refused_with_those_that_do(root, batch_size, words):
    recipe = RECIPE.changed(batch_size=batch_size)
    spec = TrainSpec(root=str(root), recipe=recipe, fingerprint=FINGERPRINT, strategy="cpu:8")
    with pytest.raises(SettingsError, match=words):
        train(spec, silent())
    assert not (root / spec.folder).exists()


def test_devices_that_are_not_there_are_a_setting_that_cannot_be():
    with pytest.raises(SettingsError, match=r"strategy=gpu: TensorFlow sees no GPU .*make setup-gpu"):
        replicas("gpu")
    with pytest.raises(SettingsError, match="strategy=cpu:9: TensorFlow has already created the devices"):
        replicas("cpu:9")


@pytest.mark.parametrize(
    ("batch_size", "replicas", "words"),
    [
        (1024, 8, None),
        (64, 8, "8 per TPU core, expected a multiple of 128 .*: part of each .* batch_size=1024 fills it"),
        (100, 1, r"100 per TPU core, expected a multiple of 128 \(at least of 8\): every .* batch_size=128 fills it"),
    ],
)
def test_a_batch_that_wastes_a_tpu_core_is_warned_about_and_nowhere_else(batch_size, replicas, words):
    advice = batch_advice("batch_size", batch_size, replicas, tpu=True)
    assert re.search(words, advice) if words else advice is None
    assert batch_advice("batch_size", batch_size, replicas, tpu=False) is None


def test_a_core_of_a_tpu_computes_one_part_of_an_accumulated_batch():
    strategy, reporter = Mock(spec=tf.distribute.TPUStrategy, num_replicas_in_sync=2), Mock()
    warn_of_padding("batch_size", 1024, strategy, reporter, accumulate=4)
    assert not reporter.warn.called
    warn_of_padding("batch_size", 256, strategy, reporter, accumulate=4)
    [[advice], _] = reporter.warn.call_args
    assert re.search("32 per TPU core, expected a multiple of 128 .* batch_size=1024 fills it", advice)


def test_the_machines_accelerators_are_seen_by_their_nodes(tmp_path):
    (tmp_path / "dev").mkdir()
    assert accelerators(tmp_path) == []
    for name in ("nvidiactl", "nvidia0", "nvidia1", "accel0"):
        (tmp_path / "dev" / name).touch()
    assert accelerators(tmp_path) == ["an NVIDIA GPU (/dev/nvidia0)", "a TPU (/dev/accel0)"]


def test_auto_that_falls_back_is_loud_and_may_be_an_error(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "accelerators", lambda: ["an NVIDIA GPU (/dev/nvidia0)"])
    assert devices.fallback("auto").startswith("THE MODEL RUNS ON THE CPU: this machine has an NVIDIA GPU (/dev/nv")
    assert devices.fallback("cpu") == ""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert devices.fallback("auto") == "", "they are hidden on purpose"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PODLINE_REQUIRE_ACCELERATOR", "true")
    with pytest.raises(SettingsError, match=r"sees no GPU \(an NVIDIA GPU \(/dev/nvidia0\)\) and require_accelerator"):
        devices._strategy.__wrapped__("auto")


@pytest.mark.parametrize(("name", "address"), [("tpu", "local"), ("tpu:grpc://10.0.0.2:8470", "grpc://10.0.0.2:8470")])
def test_a_tpu_s_name_reaches_the_resolver(monkeypatch, name, address):
    """As far as it goes without a TPU: the strategy is made of what connects to the right one."""
    connect = classmethod(lambda _cls, tpu: f"resolver of {tpu}")
    monkeypatch.setattr(tf.distribute.cluster_resolver.TPUClusterResolver, "connect", connect)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda resolver: ("TPUStrategy", resolver))
    assert devices._strategy.__wrapped__(name) == ("TPUStrategy", f"resolver of {address}")


RUN_STAGE = """
import json
import sys
from podline.base.errors import PodlineError
from podline.stages.specs import TrainSpec
from podline.stages.supervision.supervisor import run_stage

try:
    run_stage(TrainSpec.model_validate_json(sys.argv[1]), lambda event: print(json.dumps(event), flush=True))
except PodlineError as error:
    sys.exit(error.exit_code)
"""
WORKER_STEPS = 120

Event = dict[str, Any]


def spec_of(root: Path | str) -> TrainSpec:
    publish_dataset(root)
    recipe = lively_recipe(
        model={"kind": "linear", "dropout": 0.2, "l2": 1e-2, "l2_layers": ("classifier",)},
        evaluation_batch_size=15,
        duration={"steps": WORKER_STEPS},
        optimizer={"clip_norm": 1.0},
        schedule={"kind": "cosine", "learning_rate": 0.01},
        evaluate_every={"steps": 50},
        checkpoint_steps=20,
        summary_steps=1,  # many stops: somebody who is asked to end, or is lost, is so between two of them
    )
    return TrainSpec(root=str(root), recipe=recipe, fingerprint=FINGERPRINT, strategy="workers")


@contextlib.contextmanager
def workers(spec: TrainSpec) -> Iterator[list[subprocess.Popen[str]]]:
    """Both workers, started with the same command."""
    addresses = [f"localhost:{port}" for port in free_ports(2)]
    with contextlib.ExitStack() as stack:
        processes = []
        for index in range(2):
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            process = subprocess.Popen(
                [sys.executable, "-c", RUN_STAGE, spec.model_dump_json()],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "TF_CONFIG": json.dumps(config)},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        yield processes


def heard_until(process: subprocess.Popen[str], step: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "progress" and event["done"] >= step:
            return
    raise AssertionError(f"ended with {process.wait()} before step {step}")


def last_words(processes: list[subprocess.Popen[str]]) -> list[Event]:
    """The last event of each."""
    return [json.loads(process.communicate(timeout=240)[0].splitlines()[-1]) for process in processes]


def child_of(process: subprocess.Popen[str]) -> int:
    [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(child)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_workers_train_as_one_process_would_and_go_on_after_sigterm_and_a_loss(tmp_path: Path, gcs_root: str):
    spec = spec_of(f"{gcs_root}together")  # of which both read; what follows is in folders
    with workers(spec) as both:
        ended = last_words(both)
    results = [TrainResult.model_validate(event["result"]) for event in ended]
    assert results[0].weights_sha256 == results[1].weights_sha256
    assert results[0].devices == "2 × cpu"
    store = open_store(spec.root)
    weights = store.read_bytes(f"{spec.folder}/model/weights.npz")
    assert not list((store.scratch / "tmp").iterdir()), "the second worker's copy is gone"

    # One process alone takes the same steps.
    alone = spec_of(tmp_path / "alone").model_copy(update={"strategy": "cpu"})
    train(alone, silent())
    lines, expected = (
        read_metrics(open_store(root).local(f"{spec.folder}/metrics.jsonl")) for root in (spec.root, alone.root)
    )
    assert [line.step for line in lines] == [line.step for line in expected]
    for ours, theirs in zip(lines, expected, strict=True):
        if isinstance(ours, StepsLine) and isinstance(theirs, StepsLine):
            np.testing.assert_allclose(ours.losses, theirs.losses, rtol=TOLERANCE)
            assert ours.accuracy == theirs.accuracy

    # SIGTERM at one is the end of both, after a checkpoint; a lost one is transient; all go on from what is saved.
    broken = spec_of(tmp_path / "broken")
    with workers(broken) as both:
        heard_until(both[1], 5)
        os.kill(child_of(both[1]), signal.SIGTERM)
        assert [event["error"]["type"] for event in last_words(both)] == [PreemptedError.__name__] * 2
    with workers(broken) as both:
        heard_until(both[0], 60)
        checkpoint = tmp_path / "broken" / spec.folder / "checkpoints" / "step-00000060.json"
        while not checkpoint.exists():  # it is told of a step before its checkpoint is whole
            time.sleep(0.01)
        os.kill(child_of(both[1]), signal.SIGKILL)
        errors = [event["error"] for event in last_words(both)]
        assert [error["type"] for error in errors] == [WorkerLostError.__name__, "ChildKilledError"]
        assert re.match(r"worker 1 \(localhost:\d+\) ended first: train: killed by SIGKILL", errors[0]["message"])
        assert both[0].returncode == WorkerLostError.exit_code
    with workers(broken) as both:
        result = TrainResult.model_validate(last_words(both)[0]["result"])
    assert len(result.resumed_from) == 2
    assert result.resumed_from[0] < 60 <= result.resumed_from[1]
    assert (tmp_path / "broken" / spec.folder / "model" / "weights.npz").read_bytes() == weights


def cluster(*ports: int) -> Cluster:
    addresses = tuple(f"localhost:{port}" for port in ports)
    return Cluster(addresses=addresses, place=0)


def test_what_is_made_is_returned_and_what_fails_is_raised():
    assert gathered(lambda: "made", cluster(1)) == "made"
    with pytest.raises(ZeroDivisionError):
        gathered(lambda: 1 / 0, cluster(1))


def test_those_that_do_not_come_are_named():
    ended = threading.Event()
    with contextlib.closing(socket.create_server(("localhost", 0))) as here:
        there = here.getsockname()[1]
        with socket.socket() as nobody:
            nobody.bind(("localhost", 0))
            silent = nobody.getsockname()[1]
            with pytest.raises(WorkerLostError, match="fewer workers than the 3 expected") as caught:
                gathered(ended.wait, cluster(1, there, silent), seconds=0.3)
        ended.set()
    assert f"no answer from worker 2 (localhost:{silent})" in str(caught.value)
    assert f"localhost:{there}" not in str(caught.value)


SBATCH = Path(__file__).resolve().parents[2] / "deployments" / "slurm" / "train.sbatch"


SLURM_STEPS = 200


_SECONDS = 300.0


def slurm_spec_of(root: Path, strategy: str = "workers") -> TrainSpec:
    spec = spec_of(root)
    recipe = spec.recipe.changed(duration={"steps": SLURM_STEPS}, evaluate_every=None, ema_decay=0.0)
    return spec.changed(recipe=recipe, strategy=strategy)


class Job(NamedTuple):
    """A job of Slurm."""

    number: str
    environment: dict[str, str]
    log: Path

    def scontrol(self, *arguments: str) -> str:
        command = ["scontrol", *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout

    @property
    def state(self) -> dict[str, str]:
        words = self.scontrol("show", "job", self.number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def await_state(self, wanted: str) -> dict[str, str]:
        deadline = time.monotonic() + _SECONDS
        while (state := self.state)["JobState"] != wanted:
            assert state["JobState"] in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED"), self.log.read_text()
            assert time.monotonic() < deadline, f"{state}\n{self.log.read_text()}"
            time.sleep(0.2)
        return state


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(slurm_cluster.missing()), reason=f"needs {', '.join(slurm_cluster.missing())}")
def test_slurm_trains_as_one_process_would_and_goes_on_with_the_nodes_that_are_left(tmp_path: Path):
    _, _, folder = unbroken(slurm_spec_of(tmp_path / "alone", "cpu"))
    alone = losses(folder)
    assert len(alone) == SLURM_STEPS
    (tmp_path / "slurm").mkdir()
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(SBATCH.parents[2])}
    with slurm_cluster.slurm(tmp_path / "slurm", free_ports(3)) as environment:

        def submitted(spec: TrainSpec) -> Job:
            file, log = Path(spec.root) / "spec.json", Path(spec.root) / "log"
            file.write_text(spec.model_dump_json())
            command = ["sbatch", "--parsable", "--nodes=1-2", f"--output={log}", str(SBATCH), "--spec", str(file)]
            sbatch = subprocess.run(command, env=environment | path, capture_output=True, text=True, check=True)
            return Job(sbatch.stdout.strip(), environment, log)

        together = slurm_spec_of(tmp_path / "together")
        assert submitted(together).await_state("COMPLETED")["NumNodes"] == "2"
        np.testing.assert_allclose(losses(Path(together.root) / together.folder), alone, rtol=TOLERANCE)

        broken = slurm_spec_of(tmp_path / "broken")
        job = submitted(broken)
        deadline = time.monotonic() + _SECONDS
        while not (Path(broken.root) / broken.folder / "checkpoints" / "step-00000040.json").exists():
            assert time.monotonic() < deadline, job.log.read_text()
            time.sleep(0.01)
        job.scontrol("update", f"NodeName={slurm_cluster.NODES[1]}", "State=DRAIN", "Reason=lost")
        [rank] = training_processes(Path(broken.root), b"SLURM_PROCID=1\0")
        os.kill(rank, signal.SIGKILL)
        lost = time.monotonic()
        job.await_state("PENDING")
        assert time.monotonic() - lost < 60
        job.scontrol("update", f"JobId={job.number}", "StartTime=now")  # Slurm waits for two minutes
        state = job.await_state("COMPLETED")
    assert (state["NumNodes"], state["Restarts"]) == ("1", "1")
    folder = Path(broken.root) / broken.folder
    events = read_events(folder / "events.jsonl")
    assert [event.event for event in events] == ["started", "host_lost", "restored", "finished"]
    assert events[0].message.endswith("2 × cpu of 2 hosts")
    assert re.match(r"worker 1 \(127.0.0.2:\d+\) ended first: train: killed by SIGKILL", events[1].message)
    assert events[2].message.endswith(", cpu")
    assert events[2].step >= 40
    np.testing.assert_allclose(losses(folder), alone, rtol=TOLERANCE)
