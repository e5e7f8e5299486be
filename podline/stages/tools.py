"""Specs and results of the stages outside the chain, such as preflight, learning-rate search, prediction and export.

These stages run like the others: in a child process, so that the command line and flows need not import TensorFlow.
Errors keep their class, and progress is shown.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field, model_validator

from podline.base.errors import SettingsError
from podline.base.figures import count, duration, percent, rate, size
from podline.base.frozen import Frozen, Json, JsonObject
from podline.base.plurals import plural
from podline.recipes.durations import Duration
from podline.recipes.measures import measure_named, value_text
from podline.recipes.settings import Recipe
from podline.stages.base import RecipeSpec, Result, Spec, TrainableSpec, Where
from podline.stages.specs import TrainSpec

# Part of a search's identity: raise it when the same curve would give another rate.
FINDER_VERSION = 2
# The file with predictions, in the folder of the annotated pictures.
PREDICTIONS = "predictions.json"
# Number of classes in the line of a picture.
_NAMED = 3
# Number of pictures that get a line.
_LISTED = 50
ExportFormat: TypeAlias = Literal["saved-model", "onnx", "tflite", "tflite-int8"]
"""Formats of models for other runtimes; ``tflite-int8`` computes with 8-bit integers."""


class InputSpeedSpec(RecipeSpec["InputSpeed"]):
    """Measures the speed of a recipe's input on this machine, and of the training step with it."""

    seconds: float = Field(default=0.5, gt=0, le=60, description="the seconds for which each stage is measured")


class StageSpeed(Frozen):
    """The measured speed of one stage of the input, or of the training step, without the others."""

    name: str = Field(description="`read`, `augment` or `step`")
    about: str = Field(description="the work of the stage")
    milliseconds: float = Field(description="duration of a batch in milliseconds")
    examples_per_second: float = Field(description="the speed if this were the only stage")


class InputSpeed(Result):
    """The speed of a recipe's input, and of training with this input. Rates are in examples/s."""

    recipe: str = Field(description="the recipe's name")
    dataset: str = Field(description="the data set's folder in the store")
    batch_size: int = Field(description="number of examples in a batch")
    devices: str = Field(description="the device of the model")
    stages: tuple[StageSpeed, ...] = Field(description="the stages in the order of processing; the training step last")
    training: float = Field(description="rate of the training with this input")
    waiting: float = Field(description="share of the training time spent waiting for input, 0…1")

    @property
    def feeds(self) -> bool:
        """Return whether the training step hardly waits for input."""
        return self.waiting < _HARDLY

    @property
    def bottleneck(self) -> str:
        """Return the name of the slowest stage of the input."""
        return min(self.stages[:-1], key=lambda stage: stage.examples_per_second).name

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return a table of the stages, and advice if the input is too slow."""
        row = "{:8} {:>12} {:>11}   {}".format
        rows = [row("stage", "examples/s", "ms a batch", f"{self.recipe}, batches of {self.batch_size}")]
        rows += [
            row(stage.name, rate(stage.examples_per_second), f"{stage.milliseconds:.3f}", stage.about)
            for stage in self.stages
        ]
        feeds = "the input feeds the model" if self.feeds else f"the input is too slow. {_ADVICE[self.bottleneck]}"
        speed = f"Training takes {rate(self.training)} examples/s and waits for input {percent(self.waiting)} of its"
        return [*rows, "", f"{speed} time: {feeds}."]


# A training that waits for less than this share of its time is not limited by its input.
_HARDLY = 0.05
_ADVICE = {
    "read": "Reading is the slower stage: use a faster disk, or enough memory for the whole data set",
    "augment": "Augmentation is the slower stage: use less augmentation, or more CPU cores",
}


class ShowSpec(RecipeSpec["ShowResult"]):
    """Draws a sheet of pictures: a recipe's model input and, for a finished run, the model's answers."""

    run: str = Field(default="", description="a finished run whose predictions and mistakes are shown too")
    out: str = Field(description="the PNG file to write or replace")
    examples: int = Field(default=8, ge=1, le=20, description="number of pictures in a row")
    epochs: int = Field(default=4, ge=1, le=20, description="number of rows of augmented pictures")


class ShowResult(Result):
    """The sheet's path, and the numbers of evaluated and correct examples; 0 without right or wrong answers."""

    png: str
    examples: int = 0
    correct: int = 0

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return the number of correct examples, if any were evaluated, and the file."""
        right = f"{count(self.correct)} of {count(self.examples)} test examples right"
        return [*([f"{right}, {percent(self.correct / self.examples)}"] if self.examples else []), self.png]


class LearningRateSpec(TrainableSpec["LearningRateResult"]):
    """Searches for a learning rate: raises the rate from step to step, and chooses one by the losses.

    The search starts with the initial weights of a training, or with a run's checkpoint, which stays unchanged.
    """

    low: float = Field(default=1e-5, gt=0, description="the learning rate of the first step")
    high: float = Field(default=10.0, gt=0, le=1e6, description="the learning rate of the last step")
    steps: int = Field(default=300, ge=20, le=100_000, description="number of steps from low to high")
    run: str = Field(default="", description="the run to start from; empty for initial weights")
    checkpoint_step: int = Field(default=0, ge=0, description="the step of the run's checkpoint to start from")
    checkpoint_sha256: str = Field(default="", description="sha256 of the run's checkpoint; empty for initial weights")
    finder_version: int = FINDER_VERSION

    @model_validator(mode="after")
    def _rises(self) -> LearningRateSpec:
        if self.low >= self.high:
            raise SettingsError(f"the rate rises from low={self.low:g} to high={self.high:g}: low must be below high")
        return self

    @property
    def folder(self) -> str:
        """Return the folder of the results."""
        return f"finder/{self.recipe.name}-{self.digest()[:12]}"


class LearningRateResult(Result):
    """The result of a search; ``folder`` has the chart, and ``finder.json`` with the curve and the suggested rate."""

    folder: str = Field(description="the folder's name in the store")
    chart: str = Field(description="the chart's name in the store, a PNG")
    learning_rate: float = Field(description="the suggested rate")
    recipe_rate: float = Field(description="the recipe's own rate, for comparison")
    floor: tuple[float, float] | None = Field(
        description="the lowest and highest rate at which the loss is near its minimum; None if the loss never falls"
    )
    blow_up: float | None = Field(description="the rate from which on the loss only rises; None if there is none")
    steps: int = Field(description="the number of steps done, fewer than requested if the loss exploded")
    reasons: tuple[str, ...] = Field(description="reasons for the suggested rate, one sentence each")

    def lines(self, where: Where = str, /) -> list[str]:
        """Return the suggested rate, the reasons and the chart."""
        first = f"suggested learning rate: {self.learning_rate:g} (the recipe has {self.recipe_rate:g})"
        return [first, *(f"- {reason}" for reason in self.reasons), where(self.chart)]


class PreflightSpec(TrainSpec):
    """The spec of a training to rehearse, see :class:`~podline.stages.specs.TrainSpec`."""


class Preflight(Result):
    """The result of a rehearsal: estimates of time and memory; ``seconds`` is the duration of the rehearsal."""

    run: str = Field(description="the run's name")
    devices: str = Field(description="the device of the rehearsal")
    steps: int = Field(description="the number of remaining steps")
    batch_size: int = Field(description="number of examples in a step")
    phases: int = Field(default=1, description="the number of phases; `batch_size` and `step` are of the first")
    first_step: float = Field(description="seconds of the first step, including tracing")
    step: float = Field(description="seconds of each later step")
    evaluation: float = Field(description="seconds of an evaluation of the whole split")
    evaluations: int = Field(description="the number of evaluations")
    checkpoint: float = Field(description="seconds for writing a checkpoint")
    checkpoint_bytes: int = Field(description="size of a checkpoint in bytes")
    training_seconds: float = Field(description="the estimate for all remaining steps, evaluations and checkpoints")
    features_seconds: float = Field(
        default=0.0, description="seconds, out of `training_seconds`, for computing frozen layers once"
    )
    saved_seconds: float = Field(
        default=0.0, description="additional seconds if the frozen layers were computed in every step"
    )
    memory_bytes: int = Field(description="peak memory of the process")
    device_memory_bytes: int = Field(
        default=0, description="peak memory of the device; 0 if the device has no memory of its own"
    )

    def share_within(self, seconds: float) -> float:
        """Return the fraction of the training that fits into ``seconds``; above 1 if a longer training fits."""
        once = (seconds - self.features_seconds) / (self.training_seconds - self.features_seconds)
        # For a short training, it takes less time to compute the frozen layers in every step.
        return max(once, seconds / (self.training_seconds + self.saved_seconds))

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return the estimate as text."""
        speed, pace = rate(self.batch_size / self.step), f"{1000 * self.step:.0f} ms"
        evaluation, checkpoint = duration(self.evaluation), duration(self.checkpoint)
        steps, first = plural(self.steps, "step"), f", in the first of {self.phases} phases" if self.phases > 1 else ""
        device = f", {size(self.device_memory_bytes)} on the device" if self.device_memory_bytes else ""
        return [
            f"{self.run}: ready to train on {self.devices}",
            f"{steps} of {plural(self.batch_size, 'example')}, {pace} each ({speed} examples/s){first}",
            f"the first step after {self.first_step:.1f} s; {plural(self.evaluations, 'evaluation')} of {evaluation}",
            f"checkpoints of {size(self.checkpoint_bytes)}, {checkpoint} each",
            f"about {duration(self.training_seconds)} in all, {size(self.memory_bytes)} of memory{device}",
        ]


class PaceSpec(TrainableSpec["Pace"]):
    """Measures by a rehearsal which duration of a recipe fits into a number of minutes.

    The store keeps the result, so that later calls on any machine train equally long and find the same run.
    """

    minutes: float = Field(gt=0, le=100_000, description="the minutes for training, evaluations and checkpoints")

    @property
    def folder(self) -> str:
        """Return the folder of the result."""
        return f"paces/{self.recipe.name}-{self.digest()[:12]}"


class Pace(Result):
    """The duration that fits into the requested minutes."""

    folder: str = Field(description="the folder's name in the store")
    duration: Duration = Field(description="the duration of the training, in the recipe's unit: steps or epochs")
    training_seconds: float = Field(description="the estimated seconds of the training")


class PredictSpec(Spec["PredictResult"]):
    """Predicts pictures with a finished run's model."""

    run: str
    images: tuple[str, ...] = Field(min_length=1, description="pictures of any size, and sources of pictures")
    table: str = Field(
        default="", description="a .csv or .parquet file to write, with one row per picture, in place of `out`"
    )
    top: int | None = Field(
        default=None,
        ge=1,
        description="the largest number of classes or labels in a row of the table; None: 5 classes, or all labels",
    )
    out: str = Field(description="the folder for predictions.json and, for a pose network, a picture per file")
    threshold: float | None = Field(
        default=None,
        description="the lowest score of people, or probability of labels; None uses the evaluation's threshold for "
        "people, or for each label",
    )


class ClassShare(Frozen):
    """A class with its predicted probability."""

    name: str
    probability: float


class PicturePrediction(Frozen):
    """The model's answer for one picture."""

    file: str = Field(description="the path of the picture")
    width: int = Field(description="width of the picture in pixels")
    height: int = Field(description="height of the picture in pixels")
    picture: str | None = Field(
        default=None, description="a copy of the picture with drawn skeletons; None for other models"
    )
    people: tuple[JsonObject, ...] | None = Field(
        default=None,
        description="COCO results of a pose network, best score first, with the file's name; None for other models",
    )
    classes: tuple[ClassShare, ...] | None = Field(
        default=None,
        description="every class, most probable first, or the predicted labels; None for other models",
    )
    answer: Json = Field(
        default=None, description="the answer of a model of an installed kind, in the form of the record's target"
    )
    words: str = Field(default="", description="the answer as text")

    def line(self) -> str:
        """Return the answer for the picture in one line."""
        if self.classes is not None:
            classes = (f"{share.name} {100 * share.probability:.1f} %" for share in self.classes[:_NAMED])
            return f"{self.file}: {', '.join(classes) or 'none'}"
        if self.people is not None:
            drawn = f" → {self.picture}" if self.picture else ""
            return f"{self.file}: {plural(len(self.people), 'instance')}{drawn}"
        return f"{self.file}: {self.words}"


class PredictResult(Result):
    """The model's answers for some pictures, in the order of the pictures, as in the file ``json_file``."""

    run: str
    threshold: float | None
    pictures: tuple[PicturePrediction, ...] = Field(default=(), description="the answers; empty if a table was written")
    json_file: str = ""
    table: str = ""
    summary: tuple[str, ...] = Field(default=(), description="a summary of the table, as lines")

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return a line for each of the first pictures or the table's summary, and the written file."""
        listed, more = self.pictures[:_LISTED], len(self.pictures) - _LISTED
        rest = [f"… and {plural(more, 'picture')} more"] if more > 0 else []
        return [*(picture.line() for picture in listed), *rest, *self.summary, self.table or self.json_file]


class ExportSpec(Spec["ExportResult"]):
    """Writes a run's model as a file for another runtime."""

    run: str
    weights_sha256: str = Field(description="sha256 of the model's weights, which identifies the model")
    format: ExportFormat
    file: str = Field(description="the file to write or replace; for a SavedModel, a new folder")
    examples: int = Field(default=0, ge=0, description="the number of test examples for the evaluation; 0 for all")


class ExportResult(Result):
    """An exported model, compared with the original in an evaluation; a JSON file next to it has this result."""

    run: str
    format: ExportFormat
    file: str
    bytes: int = Field(description="size of the file")
    examples: int = Field(description="number of test examples in the comparison")
    measure: str = Field(description="the main metric")
    model: float = Field(description="the main metric of the original model")
    exported: float = Field(description="the main metric of the exported model")
    differing: int | None = Field(
        default=None, description="number of examples with different answers; None if answers are not single values"
    )
    difference: float = Field(description="the largest difference between outputs, on the first 100 examples")

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return the file with its size, and the main metric of both models."""
        exported, model = (value_text(self.measure, value) for value in (self.exported, self.model))
        label, examples = measure_named(self.measure).label, plural(self.examples, "test example")
        verb = "differs" if self.differing == 1 else "differ"
        differing = "" if self.differing is None else f"; {plural(self.differing, 'answer')} {verb}"
        return [
            f"{self.file}  {size(self.bytes)}",
            f"{label} {exported} vs {model} of the model, on {examples}{differing}",
            f"outputs differ by {self.difference:.2g} at most",
        ]


class ModelCheckSpec(Spec["ModelCheck"]):
    """Checks on random images which uses of a network work, such as resuming and exporting."""

    recipe: Recipe = Field(description="the recipe whose `model` is checked")
    image_shape: tuple[int, int, int] = Field(description="height, width and channels")
    classes: int = Field(ge=1, description="the number of outputs")


class CheckedPart(Frozen):
    """The outcome of one check of `podline models check`, such as resuming or TFLite."""

    name: str
    works: bool | None = Field(description="null if the check does not apply to the network or this machine")
    words: str = Field(description="a measured value, or the cause of a failure")
    seconds: float = Field(description="the duration of the check")


class ModelCheck(Result):
    """The result of `podline models check`."""

    model: str = Field(description="the model's name")
    image_shape: tuple[int, int, int] = Field(description="height, width and channels")
    classes: int = Field(description="the number of outputs")
    parts: tuple[CheckedPart, ...] = Field(description="the checks, in order")

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return a line for each check."""
        width = max(len(part.name) for part in self.parts)
        marks = {True: "yes", False: "no", None: "-"}
        shape = " × ".join(map(str, self.image_shape))
        rows = [f"{part.name:{width}}  {marks[part.works]:3}  {part.words}" for part in self.parts]
        return [
            f"{self.model} for {shape} images and {plural(self.classes, 'class', 'classes')}, {duration(self.seconds)}",
            *rows,
        ]
