"""The table of stages: spec, result, code, place in the flow, section in the report.

A stage is a plain function from a frozen spec to a frozen result, ``run(spec, reporter) -> result``. Python, the
command line and a Prefect task call the same function. A successful stage publishes a *completion record* last, with
the checksum of every artifact. A later call with the same spec finds the record, checks the artifacts and returns the
result. A damaged file makes only its own stage and the stages that depend on it run again.

Installed packages add rows as entry points of the group ``podline.stages``; docs/how-to/stage.md has an example.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from podline.base import entry_points
from podline.base.errors import SettingsError
from podline.base.progress import Reporter, reported_by
from podline.recipes.parts import Loaded, Registry
from podline.settings.machine import nearest
from podline.stages.base import Result, Spec
from podline.stages.data_changes import DataChanges, DataChangesSpec
from podline.stages.specs import (
    ConvertResult,
    ConvertSpec,
    EvaluateResult,
    EvaluateSpec,
    PromoteResult,
    PromoteSpec,
    ReportResult,
    ReportSpec,
    TrainResult,
    TrainSpec,
    ValidateResult,
    ValidateSpec,
)
from podline.stages.suspects import SuspectsResult, SuspectsSpec
from podline.stages.tools import (
    ExportResult,
    ExportSpec,
    InputSpeed,
    InputSpeedSpec,
    LearningRateResult,
    LearningRateSpec,
    ModelCheck,
    ModelCheckSpec,
    Pace,
    PaceSpec,
    PredictResult,
    PredictSpec,
    Preflight,
    PreflightSpec,
    ShowResult,
    ShowSpec,
)
from podline.store.contract import Store
from podline.store.opening import open_store

ENTRY_POINTS = "podline.stages"

S = TypeVar("S", bound=Spec[Any])
R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Stage(Generic[S, R]):
    """A row of the table. Its functions are given as ``module:function`` and imported when they are called.

    Attributes:
        run_at: ``run(spec, reporter) -> result``: does the work, in a child process; may import TensorFlow or Beam.
        find_at: ``find(spec, reporter) -> result | None``: returns an earlier result whose files are unchanged; must
            not import TensorFlow or Beam.
        title: a sentence about the stage for Prefect's UI.
        after: for an installed stage: the stage that it follows in the training flow.
        spec_at: for an installed stage: ``spec(store, run) -> spec``: returns the spec for the run with this name.
        section: the heading in the report above the result's lines; empty for no section.
        keeps: what the next start reuses of an interrupted stage, as text; empty if the next start begins anew.
    """

    name: str
    spec: type[S]
    result: type[R]
    run_at: str
    find_at: str = "podline.stages.completed:find"
    title: str = ""
    after: str = ""
    spec_at: str = ""
    section: str = ""
    keeps: str = ""

    def run(self, spec: S, reporter: Reporter) -> R:
        """Do the work in this process; protect the data set and the run that it uses from deletion meanwhile."""
        with reported_by(reporter), open_store(spec.root).using(spec.uses):
            return entry_points.load(self.run_at)(spec, reporter)

    def find(self, spec: S, reporter: Reporter) -> R | None:
        """Return an earlier result whose files are unchanged, or None.

        Raises:
            SettingsError: the function of an installed stage fails.
        """
        with (
            entry_points.explained(f"stage {self.name} ({self.find_at})") if self.spec_at else contextlib.nullcontext()
        ):
            return entry_points.load(self.find_at)(spec, reporter)

    def spec_of(self, store: Store, run: str) -> S:
        """Return the spec of an installed stage for a run.

        Raises:
            StoreError: the run, or a result that the stage needs, does not exist.
            SettingsError: the function fails.
        """
        with entry_points.explained(f"stage {self.name} ({self.spec_at})"):
            return entry_points.load(self.spec_at)(store, run)


CONVERT = Stage(
    "convert",
    ConvertSpec,
    ConvertResult,
    "podline.beam_jobs.conversion:convert",
    "podline.data.versions.fingerprint:find_converted",
    title="Converts raw data to sharded TFRecords.",
    keeps="finished shards are kept, and the next start writes the others",
)
VALIDATE = Stage(
    "validate",
    ValidateSpec,
    ValidateResult,
    "podline.data.versions.validation:validate",
    title="Verifies every byte of the data set against its manifest.",
)
TRAIN = Stage(
    "train",
    TrainSpec,
    TrainResult,
    "podline.training.train:train",
    title="Trains the recipe; an interrupted run resumes from its last checkpoint.",
    keeps="checkpoints are kept, and the next start resumes from the last one",
)
EVALUATE = Stage(
    "evaluate",
    EvaluateSpec,
    EvaluateResult,
    "podline.evaluation.evaluate:evaluate",
    title="Evaluates the trained model, every example once.",
)
PROMOTE = Stage(
    "promote",
    PromoteSpec,
    PromoteResult,
    "podline.champions.promote:promote",
    "podline.champions.finding:find",
    title="Compares the model with the reference, and makes it the champion if it is shown not to be worse.",
)
REPORT = Stage(
    "report",
    ReportSpec,
    ReportResult,
    "podline.report.report:report",
    title="Writes an HTML page about the run, and the same in Markdown.",
)
PACE = Stage(
    "pace",
    PaceSpec,
    Pace,
    "podline.training.train:pace",
    title="Measures how many epochs or steps fit into the requested minutes.",
)
LR_FIND = Stage(
    "lr-find",
    LearningRateSpec,
    LearningRateResult,
    "podline.training.finder:find_learning_rate",
    title="Trains at a rising learning rate, and chooses a rate by the losses.",
)
# No flow runs these, so they need no title.
PREFLIGHT = Stage("preflight", PreflightSpec, Preflight, "podline.training.train:preflight")
SHOW = Stage("show", ShowSpec, ShowResult, "podline.evaluation.sheet:run")
PREDICT = Stage("predict", PredictSpec, PredictResult, "podline.evaluation.predicting:run")
EXPORT = Stage("export", ExportSpec, ExportResult, "podline.champions.exporting:export")
MODEL_CHECK = Stage("model-check", ModelCheckSpec, ModelCheck, "podline.champions.model_check:check")
INPUT_SPEED = Stage("benchmark", InputSpeedSpec, InputSpeed, "podline.training.input_speed:run")
DATA_CHANGES = Stage("data-changes", DataChangesSpec, DataChanges, "podline.evaluation.sheet:changes")
SUSPECTS = Stage(
    "suspects",
    SuspectsSpec,
    SuspectsResult,
    "podline.search.suspects.finding:find_suspects",
    keeps="trained models are kept, and the next start trains the others",
)

# The stages of the training flow, in order; a promotion runs on request.
CHAIN = (CONVERT, VALIDATE, TRAIN, EVALUATE, PROMOTE, REPORT)
_TOOLS = (PREFLIGHT, PACE, SHOW, PREDICT, EXPORT, LR_FIND, INPUT_SPEED, MODEL_CHECK, SUSPECTS, DATA_CHANGES)
# Podline's own stages.
STAGES: dict[str, Stage[Any, Any]] = {stage.name: stage for stage in (*CHAIN, *_TOOLS)}
# The stages that an installed stage may follow: those with a run.
_AFTER = (TRAIN.name, EVALUATE.name, PROMOTE.name, REPORT.name)


@functools.cache
def loaded() -> Loaded[Stage[Any, Any]]:
    """Return the usable stages of installed packages, sorted by name, and the problems of the others."""
    registry: Registry[Stage[Any, Any]] = Registry("stage", ENTRY_POINTS, STAGES, Stage)
    found, problems = registry.loaded()
    rows = {name: row for name, row in found.items() if name not in STAGES}
    wrong = {name: row for name, row in rows.items() if row.after not in _AFTER or not row.spec_at}
    invalid = [
        f"{registry.title(name)}: got after={row.after!r}, spec_at={row.spec_at!r}; expected after to be one of "
        f"{', '.join(_AFTER)}, and spec_at to name a function"
        for name, row in wrong.items()
    ]
    return Loaded({name: row for name, row in rows.items() if name not in wrong}, (*problems, *invalid))


def installed() -> dict[str, Stage[Any, Any]]:
    """Return the usable stages of installed packages, sorted by name."""
    return loaded().objects


def following(name: str) -> list[Stage[Any, Any]]:
    """Return the installed stages that follow a stage of the flow directly."""
    return [stage for stage in installed().values() if stage.after == name]


def in_order() -> Iterator[Stage[Any, Any]]:
    """Yield the stages of the training flow in order, each followed by its installed stages."""
    for stage in CHAIN:
        yield stage
        yield from following(stage.name)


def again_from() -> list[str]:
    """Return the names of the stages from which a flow can run again, in order.

    The promotion is left out, since a decision about the same figures stays valid.
    """
    return [stage.name for stage in in_order() if stage is not PROMOTE]


def stage_of(spec: Spec[R]) -> Stage[Spec[R], R]:
    """Return the stage whose input is this spec."""
    for stage in _all().values():
        if type(spec) is stage.spec:
            return cast("Stage[Spec[R], R]", stage)
    raise SettingsError(f"{type(spec).__name__} is not the spec of a stage")


def stage_named(name: str) -> Stage[Any, Any]:
    """Return the stage with this name.

    Raises:
        SettingsError: the stage does not exist.
    """
    if name not in _all():
        raise SettingsError(f"there is no stage {name!r}; {nearest(name, _all())}")
    return _all()[name]


def _all() -> dict[str, Stage[Any, Any]]:
    return STAGES | installed()
