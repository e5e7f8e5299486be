"""What all tests share: the real data, where it is present, and one Prefect server."""

from __future__ import annotations

import functools
import gc
import json
import os
import re
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fault_proxy
import gcs_emulator
import pytest
from xdist.scheduler import LoadFileScheduling

from podline.settings.tensorflow_noise import quiet_tensorflow

PROJECT = Path(__file__).resolve().parent.parent

# Begun first, so that no worker is left alone with one of them at the end; the slowest is first.
LONGEST = (
    "training/test_strategies.py",
    "stages/supervision/test_supervisor.py",
    "kinds/labels/test_labels_run.py",
    "champions/serving/test_serve.py",
    "training/test_train.py",
    "beam_jobs/test_dask.py",
    "training/test_plan.py",
    "training/test_decisions.py",
    "champions/test_promote.py",
    "training/test_findings.py",
    "training/test_own_models.py",
    "training/test_beginnings.py",
    "damage/test_damage.py",
)

# Trainings of tests that run side by side do not wait for each other; a test of that names a file of its own.
os.environ["PODLINE_TRAIN_LOCK"] = ""

# A shell that starts the tests in the background has them ignore Ctrl-C, and so every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

quiet_tensorflow()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data, named by PODLINE_REAL_DATA; a test that needs it skips where it is absent."""
    folder = Path(os.environ.get("PODLINE_REAL_DATA", PROJECT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set PODLINE_REAL_DATA to a folder with cifar10/ and mnist/")
    return folder


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Prefect server with a database and a home of its own; it takes 10 to 60 s to come up, so there is one."""
    # Most tests need no Prefect.
    from prefect.settings import PREFECT_HOME, PREFECT_UI_URL, temporary_settings  # noqa: PLC0415
    from prefect.testing.utilities import prefect_test_harness  # noqa: PLC0415

    home = tmp_path_factory.mktemp("prefect")
    # Links in notifications lead there.
    ours = {PREFECT_HOME: home, PREFECT_UI_URL: "http://127.0.0.1:4200"}
    with temporary_settings(ours), prefect_test_harness(server_startup_timeout=280):
        yield


@pytest.fixture(scope="session")
def gcs() -> Iterator[str]:
    """The address of a stand-in for Google Cloud Storage with the bucket ``podline-test``; see gcs_emulator.py."""
    with gcs_emulator.emulator() as url:
        gcs_emulator.make_bucket(url, "podline-test")
        yield url


@pytest.fixture
def gcs_root(gcs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A prefix of its own in the stand-in's bucket, and a cache of its own, for this process and those it starts."""
    from podline.store.buckets import forget_clients  # noqa: PLC0415 (most tests need no bucket)

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs)
    monkeypatch.setenv("PODLINE_STORE_CACHE", str(tmp_path / "cache"))
    forget_clients()
    yield f"gs://podline-test/{uuid.uuid4().hex}/a store, ü/"
    forget_clients()


class Answer(NamedTuple):
    """What a command line left: its exit code, and what it printed."""

    code: object
    out: str
    err: str


@pytest.fixture
def podline(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Answer]]:
    from podline import cli  # noqa: PLC0415 (most tests need no command)

    for variable in [name for name in os.environ if name.startswith("PODLINE_")]:
        monkeypatch.delenv(variable)

    def run(*arguments: object) -> Answer:
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        return Answer(ended.value.code, *capsys.readouterr())

    yield run
    # What --settings says holds for the process, as it should for a command line; a test is not one.
    os.environ.pop("PODLINE_SETTINGS", None)


@pytest.fixture
def answered(
    podline: Callable[..., Answer], stages_here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Run a command line with all its stages in this process, in a folder of its own; returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, code: int = 0) -> Any:
        found = podline(*words, "--root", "root", "--json")
        assert found.code == code, found.err
        return json.loads(found.out)

    podline("data", "draw", "drawn", "--train", "500")
    return run


@pytest.fixture
def in_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes that a test starts import the project and what tests share."""
    monkeypatch.setenv("PYTHONPATH", f"{PROJECT}{os.pathsep}{PROJECT / 'tests' / 'support'}")


@pytest.fixture
def small_stages(in_children: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put small stages in place of the real ones, in this process and in those that it starts."""
    from small_flow_stages import FLOW_STAGES  # noqa: PLC0415 (it registers what most tests do not need)

    from podline.stages.table import STAGES  # noqa: PLC0415

    for name, stage in FLOW_STAGES.items():
        monkeypatch.setitem(STAGES, name, stage)


@pytest.fixture
def stages_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run stages in this process, where a test is not about their processes; these would load TensorFlow anew."""
    from podline.base.progress import Reporter  # noqa: PLC0415 (most tests need no stage)
    from podline.stages.table import stage_of  # noqa: PLC0415

    def run_here(spec: Any, listener: Any, *_limits: object, **_more: object) -> Any:
        stage = stage_of(spec)
        reporter = Reporter(stage.name, listener)
        return stage.find(spec, reporter) or stage.run(spec, reporter)

    monkeypatch.setattr("podline.stages.supervision.running.run_stage", run_here)


@pytest.fixture
def parsed_here() -> Iterator[None]:
    """Run sandboxed parsers in this process, where a test is not about their limits."""
    from parsing_here import parsing_here  # noqa: PLC0415 (most tests parse nothing)

    with parsing_here():
        yield


def _take_layers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("podline.models.resnet.STAGE_CHANNELS", (32,))
    blocks = ((1, 24, 1, 2), (6, 32, 1, 2), (6, 64, 1, 2), (6, 160, 1, 2))
    patch.setattr("podline.models.mobilenetv2.BOTTLENECKS", blocks)


@pytest.fixture(scope="module")
def few_layers() -> Iterator[None]:
    """Make resnets of one stage and MobileNets of four blocks: TensorFlow traces their steps in half of the time."""
    with pytest.MonkeyPatch.context() as patch:
        _take_layers(patch)
        yield


@pytest.fixture
def no_charts() -> Iterator[None]:
    """Leave the charts of pages empty, where they are no subject."""
    from empty_charts import empty_charts  # noqa: PLC0415 (most tests draw nothing)

    with empty_charts():
        yield


@pytest.fixture(scope="module")
def few_draws() -> Iterator[None]:
    """Draw examples 40 times for an interval, not 1,000 times, where intervals are no subject."""
    from podline.documents import intervals  # noqa: PLC0415 (most tests need no interval)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "RESAMPLES", 40)
        yield


@pytest.fixture
def few_layers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make such networks in a single test of a module that needs whole ones."""
    _take_layers(monkeypatch)


@pytest.fixture
def proxy(gcs: str, gcs_root: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[fault_proxy.FaultProxy]:
    """What lies between ``gcs_root`` and its stand-in, and does nothing until a test sets the share of faults."""
    from podline.store.buckets import forget_clients  # noqa: PLC0415 (most tests need no bucket)

    with fault_proxy.fault_proxy(gcs) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        monkeypatch.setenv("PODLINE_STORE_DEADLINE", "60")
        forget_clients()
        yield proxy


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow or long tests alone are asked for, files without any are not read: what they import takes a minute."""
    if config.option.markexpr in ("slow", "long") and collection_path.suffix == ".py":
        return f"mark.{config.option.markexpr}" not in collection_path.read_text() or None
    return None


@functools.cache
def _on_the_server(file: str) -> bool:
    return re.search(r"\bprefect_server\b", (PROJECT / file).read_text()) is not None


class _FileScheduling(LoadFileScheduling):
    """Give workers whole files; those that need the Prefect server all go to one worker, which starts it once."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "the Prefect server" if _on_the_server(file) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _FileScheduling | None:
    """Replace ``--dist loadfile``, and keep the order of collection."""
    config.option.loadscopereorder = False
    return _FileScheduling(config, log) if config.option.dist == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what takes longest first where several workers share the tests."""
    if hasattr(config, "workerinput"):
        files = {PROJECT / "tests" / file: place for place, file in enumerate(LONGEST)}
        items.sort(key=lambda item: -1 if _on_the_server(str(item.path)) else files.get(item.path, len(files)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where TensorFlow is needed, it has eight CPU devices from the start: a process cannot add any later.

    What the imports left stays to the end. Each training and each evaluation begins with a garbage collection, which
    need not look through it again.
    """
    if "tensorflow" in sys.modules:
        import tensorflow as tf  # noqa: PLC0415 (most tests need no TensorFlow)

        [cpu] = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 8)
    gc.collect()
    gc.freeze()
