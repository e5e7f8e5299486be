"""The table of stages: spec, result, where the code is, how a finished one is found.

A stage is a plain function from a frozen spec to a frozen result, ``run(spec, reporter) -> result``. The same function
is called from Python, by the command line and by a Prefect task. When it ends well it leaves a *completion record*,
published last, that names every artifact with its checksum: that is how a later call knows that the work is done and
whole, and what a damaged file costs (its own stage and those that depend on it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from podline import entry_points
from podline.errors import SettingsError
from podline.progress import Reporter
from podline.stages.ceiling import CeilingSpec, DecodingCeiling
from podline.stages.prediction import PredictResult, PredictSpec
from podline.stages.preflight import Pace, PaceSpec, Preflight, PreflightSpec
from podline.stages.promotion import PromoteResult, PromoteSpec
from podline.stages.specs import (
    ConvertResult,
    ConvertSpec,
    EvaluateResult,
    EvaluateSpec,
    ReportResult,
    ReportSpec,
    Result,
    Spec,
    TrainResult,
    TrainSpec,
    ValidateResult,
    ValidateSpec,
)
from podline.stages.tools import InputSpeed, InputSpeedSpec, LearningRateResult, LearningRateSpec, ShowResult, ShowSpec
from podline.store.opening import open_store

_FIND_IN_FOLDER = "podline.stages.completed:find_in_folder"
_FIND_VERDICT = "podline.stages.completed:find_verdict"
_FIND_NOTHING = "podline.stages.completed:find_nothing"

S = TypeVar("S", bound=Spec)
R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Stage(Generic[S, R]):
    """A stage by name; its functions are entry points ``module:function``, imported only where they are called.

    Attributes:
        run_at: ``run(spec, reporter) -> result``: the work, in a child process; may import TensorFlow or Beam.
        find_at: ``find(spec, reporter) -> result | None``: an earlier result that is still whole; imports neither.
    """

    name: str
    spec: type[S]
    result: type[R]
    run_at: str
    find_at: str = _FIND_IN_FOLDER

    def run(self, spec: S, reporter: Reporter) -> R:
        """Does the work, in this process; nobody deletes what it is done on meanwhile."""
        with open_store(spec.root).using(spec.uses):
            return entry_points.load(self.run_at)(spec, reporter)

    def find(self, spec: S, reporter: Reporter) -> R | None:
        """An earlier result that is still whole, or None."""
        return entry_points.load(self.find_at)(spec, reporter)


CONVERT = Stage(
    "convert",
    ConvertSpec,
    ConvertResult,
    "podline.beam_jobs.conversion:convert",
    "podline.datasets.fingerprint:find_converted",
)
VALIDATE = Stage("validate", ValidateSpec, ValidateResult, "podline.datasets.validation:validate")
TRAIN = Stage("train", TrainSpec, TrainResult, "podline.training.train:train")
EVALUATE = Stage("evaluate", EvaluateSpec, EvaluateResult, "podline.evaluation.evaluate:evaluate", _FIND_VERDICT)
PROMOTE = Stage(
    "promote", PromoteSpec, PromoteResult, "podline.promotion.promote:promote", "podline.promotion.finding:find"
)
REPORT = Stage("report", ReportSpec, ReportResult, "podline.reporting.report:report", _FIND_VERDICT)
PREFLIGHT = Stage("preflight", PreflightSpec, Preflight, "podline.training.train:preflight", _FIND_NOTHING)
PACE = Stage("pace", PaceSpec, Pace, "podline.training.train:pace")
SHOW = Stage("show", ShowSpec, ShowResult, "podline.evaluation.sheet:run", _FIND_NOTHING)
PREDICT = Stage("predict", PredictSpec, PredictResult, "podline.evaluation.predicting:run", _FIND_NOTHING)
LR_FIND = Stage("lr-find", LearningRateSpec, LearningRateResult, "podline.training.finder:find_learning_rate")
INPUT_SPEED = Stage("benchmark", InputSpeedSpec, InputSpeed, "podline.training.input_speed:run", _FIND_NOTHING)
CEILING = Stage("ceiling", CeilingSpec, DecodingCeiling, "podline.evaluation.decoding_ceiling:ceiling", _FIND_NOTHING)

# What every night runs, in this order; a promotion stands between evaluation and report where it is asked for.
CHAIN = (CONVERT, VALIDATE, TRAIN, EVALUATE, REPORT)
# All stages, in every process.
STAGES: dict[str, Stage[Any, Any]] = {
    stage.name: stage for stage in (*CHAIN, PROMOTE, PREFLIGHT, PACE, SHOW, PREDICT, LR_FIND, INPUT_SPEED, CEILING)
}


def stage_of(spec: Spec) -> Stage[Any, Any]:
    """The stage that a spec is for."""
    for stage in STAGES.values():
        if type(spec) is stage.spec:
            return stage
    raise SettingsError(f"{type(spec).__name__} is no stage's spec")
