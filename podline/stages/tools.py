"""Specs and results of the stages beside the chain: benchmark, sheet, learning-rate search, preflight, prediction.

They run like any other stage, so an error keeps its class, progress is shown, and no process of the command line or of
a flow imports TensorFlow.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field, model_validator

from podline.errors import SettingsError
from podline.figures import count, duration, percent, rate, size, value_text
from podline.frozen import Frozen, Json, JsonObject
from podline.measures import measure_named
from podline.plurals import plural
from podline.recipes.durations import Duration
from podline.recipes.settings import Recipe
from podline.stages.specs import RecipeSpec, Result, Spec, TrainableSpec, TrainSpec, Where

# Part of a search's identity: raise it when another rate is read off the same curve.
FINDER_VERSION = 2
# The file that a prediction writes beside its pictures.
PREDICTIONS = "predictions.json"
# Classes that are named for a picture.
_NAMED = 3
ExportFormat: TypeAlias = Literal["onnx", "tflite", "tflite-int8"]
"""What a model is written as for other runtimes; ``tflite-int8`` computes in integers of 8 bits."""


class InputSpeedSpec(RecipeSpec):
    """Measure the speed of each stage of a recipe's input on this machine, and of the model."""

    seconds: float = Field(default=0.5, gt=0, le=60, description="for which each stage is measured")


class StageSpeed(Frozen):
    """A stage of the input pipeline, measured by itself."""

    name: str = Field(description="`disk`, `read`, `augment`, `batch` or `hand-over`")
    about: str = Field(description="its work")
    milliseconds: float = Field(description="for a batch")
    examples_per_second: float = Field(description="if it were the only stage")


class InputSpeed(Result):
    """The speed of a recipe's input, stage by stage, beside the model's. Rates are in examples/s."""

    recipe: str = Field(description="its name")
    dataset: str = Field(description="the data set's folder in the store")
    batch_size: int = Field(description="examples in a batch")
    devices: str = Field(description="the device of the model")
    stages: tuple[StageSpeed, ...] = Field(
        description="in the order in which a batch passes through them; `disk` is paid in the first pass over the data "
        "only (as long as memory can hold them), so it stands apart",
    )
    disk: StageSpeed = Field(description="what the first pass adds to `read`: the pages are not in memory yet")
    bottleneck: str = Field(description="the slowest of the stages")
    first_pass_bottleneck: str = Field(description="the same in the first pass")
    together: float = Field(
        description="the whole pipeline, its stages side by side as in training, without a model that uses the batches"
    )
    first_pass: float = Field(description="the same in the first pass")
    model: float = Field(description="the training step, with a batch already in memory")
    training: float = Field(description="the same with this input beside it, which may take the cores from it")
    waiting: float = Field(description="share of the time for which training with this input waited for it, 0…1")
    feeds: bool = Field(description="whether the model hardly waits (less than 5 % of the time)")

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return a table and a verdict."""
        row = "{:10} {:>12} {:>11}   {}".format
        rows = [row("stage", "examples/s", "ms a batch", f"{self.recipe}, batches of {self.batch_size}")]
        for stage in self._rows():
            mark = " ← the bottleneck" if stage.name == self.bottleneck else ""
            figures = rate(stage.examples_per_second), f"{stage.milliseconds:.3f}"
            rows.append(row(stage.name, *figures, f"{stage.about}{mark}"))
        return [*rows, "", *self._verdict()]

    def _rows(self) -> list[StageSpeed]:
        def measured(name: str, speed: float, about: str) -> StageSpeed:
            return StageSpeed(
                name=name, about=about, milliseconds=1000 * self.batch_size / speed, examples_per_second=speed
            )

        step = f"the training step on {self.devices}"
        return [
            self.disk,
            *self.stages,
            measured("together", self.together, "the whole pipeline"),
            measured("model", self.model, f"{step}, its batch at hand"),
            measured("training", self.training, f"{step} with this input"),
        ]

    def _verdict(self) -> list[str]:
        compared = f"{rate(self.together)} examples/s vs {rate(self.model)} that the model takes"
        feeds = "The input feeds the model" if self.feeds else "The input does not feed the model"
        lines = [
            f"The bottleneck of the input is {self.bottleneck}.",
            f"{feeds}: {compared}; training waits for input {percent(self.waiting)} of its time.",
        ]
        if self.first_pass_bottleneck != self.bottleneck:
            enough = "which is enough as well" if self.first_pass > self.model else "which is not enough"
            lines.append(
                f"In the first pass over the data the bottleneck is {self.first_pass_bottleneck}: "
                f"{rate(self.first_pass)} examples/s, {enough}."
            )
        if not self.feeds:
            lines.append(_ADVICE[self.bottleneck])
        elif self.training < _SLOWED * self.model:
            lines.append(
                f"But a step takes {self.model / self.training:.1f} × as long with this input as with a batch at hand: "
                "both use the same cores. Use less augmentation, or give training more cores."
            )
        return lines


# Training with the input is slower than this share of the step alone: more than two measurements differ by.
_SLOWED = 0.8


_ADVICE = {
    "disk": "The data do not fit into memory and the disk is slow: put the store on a faster one.",
    "read": "Reading is slow though the data are in memory: other processes may be using the cores or the memory.",
    "augment": "Augmentation is slow: use less of it, larger batches do not help; or give the input more cores.",
    "batch": "Turning arrays into tensors is slow, which grows with the bytes of a batch: read fewer fields.",
    "hand-over": "The way to the device is slow, which grows with the bytes of a batch: keep pixels uint8.",
}


class ShowSpec(RecipeSpec):
    """Draw a sheet of a recipe's model input and, for a finished run, of its answers."""

    run: str = Field(default="", description="a finished run; its predictions and mistakes are shown as well")
    out: str = Field(description="the PNG file that is written; one that is there is replaced")
    examples: int = Field(default=8, ge=1, le=20, description="pictures in a row")
    epochs: int = Field(default=4, ge=1, le=20, description="rows of pictures as they are augmented")


class ShowResult(Result):
    """The sheet's path, with the number of judged examples and of right answers; both are 0 without a run."""

    png: str
    examples: int = 0
    correct: int = 0

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return how many are right, if a run was asked, and the file."""
        right = f"{count(self.correct)} of {count(self.examples)} test examples right"
        return [*([f"{right}, {percent(self.correct / self.examples)}"] if self.examples else []), self.png]


class LearningRateSpec(TrainableSpec):
    """A search for a learning rate: the rate rises from step to step, and the loss says which one to train with.

    It begins with the weights that training begins with, or with a run's checkpoint, which it only reads.
    """

    low: float = Field(default=1e-5, gt=0, description="the rate of the first step")
    high: float = Field(default=10.0, gt=0, le=1e6, description="the rate of the last step")
    steps: int = Field(default=300, ge=20, le=100_000, description="steps from the one to the other")
    run: str = Field(default="", description="a run to begin from; empty is the beginning")
    checkpoint_step: int = Field(default=0, ge=0, description="the checkpoint to use")
    checkpoint_sha256: str = Field(default="", description="the identity of this checkpoint")
    finder_version: int = FINDER_VERSION

    @model_validator(mode="after")
    def _rises(self) -> LearningRateSpec:
        if self.low >= self.high:
            raise SettingsError(f"the rate rises from low={self.low:g} to high={self.high:g}: low must be below high")
        return self

    @property
    def folder(self) -> str:
        """Return where the search leaves what it found."""
        return f"finder/{self.recipe.name}-{self.digest()[:12]}"


class LearningRateResult(Result):
    """The result of a search; ``folder`` has the chart and ``finder.json``, the curve with its suggestion."""

    folder: str = Field(description="its name in the store")
    chart: str = Field(description="the name of the chart, a PNG")
    learning_rate: float = Field(description="the suggestion")
    recipe_rate: float = Field(description="the rate that the recipe has, for comparison")
    floor: tuple[float, float] | None = Field(
        description="from which rate to which the loss is near its lowest; None if it never falls"
    )
    blow_up: float | None = Field(description="the rate from which the loss only rises; None if there is none")
    steps: int = Field(description="the steps taken; fewer than asked for if the loss exploded")
    reasons: tuple[str, ...] = Field(description="reasons for the suggestion, a sentence each")

    def lines(self, where: Where = str, /) -> list[str]:
        """Return the suggestion, its reasons and the chart."""
        first = f"suggested learning rate: {self.learning_rate:g} (the recipe has {self.recipe_rate:g})"
        return [first, *(f"- {reason}" for reason in self.reasons), where(self.chart)]


class PreflightSpec(TrainSpec):
    """The spec of a training to rehearse, as :class:`~podline.stages.specs.TrainSpec`."""


class Preflight(Result):
    """The result of a rehearsal: the estimate of time and memory; ``seconds`` is the rehearsal's own duration."""

    run: str = Field(description="the run's name")
    devices: str = Field(description="the device of the rehearsal")
    steps: int = Field(description="the remaining steps")
    batch_size: int = Field(description="examples in a step")
    first_step: float = Field(description="seconds of the first step, turning it into a graph included")
    step: float = Field(description="seconds of a step after that")
    evaluation: float = Field(description="seconds of an evaluation of the whole split")
    evaluations: int = Field(description="the number of evaluations")
    checkpoint: float = Field(description="seconds that a checkpoint takes")
    checkpoint_bytes: int = Field(description="its size")
    training_seconds: float = Field(description="the estimate for all that is left: steps, evaluations, checkpoints")
    memory_bytes: int = Field(description="the most that the process had at once")
    device_memory_bytes: int = Field(default=0, description="the same of the device's own memory; 0 where it has none")

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return the estimate in words."""
        speed, pace = rate(self.batch_size / self.step), f"{1000 * self.step:.0f} ms"
        evaluation, checkpoint = duration(self.evaluation), duration(self.checkpoint)
        device = f", {size(self.device_memory_bytes)} on the device" if self.device_memory_bytes else ""
        return [
            f"{self.run}: ready to train on {self.devices}",
            f"{plural(self.steps, 'step')} of {plural(self.batch_size, 'example')}, {pace} each ({speed} examples/s)",
            f"the first step after {self.first_step:.1f} s; {plural(self.evaluations, 'evaluation')} of {evaluation}",
            f"checkpoints of {size(self.checkpoint_bytes)}, {checkpoint} each",
            f"about {duration(self.training_seconds)} in all, {size(self.memory_bytes)} of memory{device}",
        ]


class PaceSpec(TrainableSpec):
    """Find how long a recipe can train within a number of minutes, by a rehearsal.

    It is measured once: a later call trains for as long, on any machine, and finds the same run.
    """

    minutes: float = Field(gt=0, le=100_000, description="for training, evaluations and checkpoints")

    @property
    def folder(self) -> str:
        """Return where the answer is kept."""
        return f"paces/{self.recipe.name}-{self.digest()[:12]}"


class Pace(Result):
    """The duration that fits into the requested minutes."""

    folder: str = Field(description="its name in the store")
    duration: Duration = Field(description="of the training, in the recipe's own unit")
    training_seconds: float = Field(description="the estimate for it")

    def of(self, recipe: Recipe) -> Recipe:
        """Return a recipe that is trained for as long."""
        return recipe.changed(duration=self.duration)


class PredictSpec(Spec):
    """A finished run, and pictures for its model to look at."""

    run: str
    images: tuple[str, ...] = Field(min_length=1, description="JPEG or PNG files, of any size")
    out: str = Field(
        description="a folder: predictions.json goes there and, of a pose network, a picture for each file"
    )
    threshold: float | None = Field(
        default=None,
        description="people with a lower score, or labels with a lower probability, are left out; None is what the "
        "evaluation chose",
    )


class ClassShare(Frozen):
    """A class, and the probability that the model gives it."""

    name: str
    probability: float


class PicturePrediction(Frozen):
    """The model's answer for one picture."""

    file: str = Field(description="the picture's")
    width: int = Field(description="of the picture, in pixels")
    height: int = Field(description="of the picture, in pixels")
    picture: str | None = Field(
        default=None, description="the file with skeletons drawn on it; None where the model names classes"
    )
    people: tuple[JsonObject, ...] | None = Field(
        default=None,
        description="COCO results, the surest first, with the file's name; None where the model names classes",
    )
    classes: tuple[ClassShare, ...] | None = Field(
        default=None,
        description="every class, the likeliest first, or the labels that the model names; None where it finds people",
    )
    answer: Json = Field(
        default=None, description="of a model of an installed kind, in the form of the record's target"
    )
    words: str = Field(default="", description="the answer in words")

    def line(self) -> str:
        """Return what the model says of the picture."""
        if self.classes is not None:
            named = (f"{share.name} {100 * share.probability:.1f} %" for share in self.classes[:_NAMED])
            return f"{self.file}: {', '.join(named) or 'none'}"
        if self.people is not None:
            return f"{self.file}: {plural(len(self.people), 'instance')} → {self.picture}"
        return f"{self.file}: {self.words}"


class PredictResult(Result):
    """The model's answers for some pictures, in their order; ``json_file`` has the same."""

    run: str
    json_file: str
    threshold: float | None
    pictures: tuple[PicturePrediction, ...]

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return a line for each picture, and the file."""
        return [*(picture.line() for picture in self.pictures), self.json_file]


class ExportSpec(Spec):
    """Write a run's model as a file for another runtime."""

    run: str
    weights_sha256: str = Field(description="the model's identity")
    format: ExportFormat
    file: str = Field(description="the file that is written; one that is there is replaced")
    examples: int = Field(default=0, ge=0, description="the first test examples that it is judged on; 0 is all")


class ExportResult(Result):
    """A file for another runtime, judged beside the model that it was made of; the same lies beside the file."""

    run: str
    format: ExportFormat
    file: str
    bytes: int = Field(description="its size")
    examples: int = Field(description="test examples that both were asked about")
    measure: str = Field(description="the metric that counts")
    model: float = Field(description="that of the model")
    exported: float = Field(description="that of the file")
    differing: int | None = Field(
        default=None, description="examples that the two answer differently; None where answers are no single values"
    )
    difference: float = Field(description="the largest between two outputs, on the first 100 examples")

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return the file with its size, and both figures."""
        exported, model = (value_text(self.measure, value) for value in (self.exported, self.model))
        label, examples = measure_named(self.measure).label, plural(self.examples, "test example")
        differing = "" if self.differing is None else f"; {plural(self.differing, 'answer')} differ"
        return [
            f"{self.file}  {size(self.bytes)}",
            f"{label} {exported} vs {model} of the model, on {examples}{differing}",
            f"outputs differ by {self.difference:.2g} at most",
        ]
