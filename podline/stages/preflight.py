"""Spec and result of the preflight; :mod:`podline.training.rehearsal` does it."""

from __future__ import annotations

from pydantic import Field

from podline.figures import duration, rate, size
from podline.plurals import plural
from podline.recipes.settings import Duration, Recipe
from podline.stages.specs import Result, TrainableSpec, TrainSpec, Where


class PreflightSpec(TrainSpec):
    """What :class:`~podline.stages.specs.TrainSpec` is given, rehearsed and not done."""


class Preflight(Result):
    """That a training can begin, and what it will take; ``seconds`` is what the rehearsal took.

    Attributes:
        run: the run's name.
        devices: what it was rehearsed on.
        steps: what is left to do.
        batch_size: examples in a step.
        first_step: seconds of the first step, turning it into a graph included.
        step: seconds of a step after that.
        evaluation: seconds of an evaluation of the whole split.
        evaluations: how many there will be.
        checkpoint: seconds that a checkpoint takes.
        checkpoint_bytes: its size.
        training_seconds: the estimate for all that is left: steps, evaluations, checkpoints.
        memory_bytes: the most that the process had at once.
        device_memory_bytes: the same of the device's own memory; 0 where it has none.
    """

    run: str
    devices: str
    steps: int
    batch_size: int
    first_step: float
    step: float
    evaluation: float
    evaluations: int
    checkpoint: float
    checkpoint_bytes: int
    training_seconds: float
    memory_bytes: int
    device_memory_bytes: int = Field(default=0)

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
    """How long a recipe can be trained within some minutes, as a preflight finds it.

    It is measured once: a later call trains for as long, on any machine, and finds the same run.
    """

    minutes: float = Field(gt=0, le=100_000, description="for training, evaluations and checkpoints")

    @property
    def folder(self) -> str:
        """Return where the answer is kept."""
        return f"paces/{self.recipe.name}-{self.digest()[:12]}"


class Pace(Result):
    """What fits into the minutes that were asked for.

    Attributes:
        folder: its name in the store.
        duration: of the training, in the recipe's own unit.
        training_seconds: the estimate for it.
    """

    folder: str
    duration: Duration
    training_seconds: float

    def of(self, recipe: Recipe) -> Recipe:
        """Return a recipe that is trained for as long."""
        return recipe.changed(duration=self.duration)
