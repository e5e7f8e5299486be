"""Plans a training run from a recipe and a data set: batches, steps, evaluations, phases. Needs no TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.base.errors import SettingsError
from podline.base.figures import count
from podline.base.plurals import plural
from podline.contract.kind import kind_of
from podline.data.order import TrainingOrder, held_out, part_of
from podline.data.reader import SplitReader
from podline.documents.manifest import TEST, TRAINING, VALIDATION, Manifest
from podline.recipes.epochs import Epochs
from podline.recipes.settings import Recipe, ScheduleSettings
from podline.training.schedules import Schedule, build_schedule

# Number of records whose labels are read at a time.
_BLOCK = 2**16
# The steps of all evaluations are in memory, and each evaluation is a line of metrics.jsonl.
_MOST_EVALUATIONS = 1_000_000


class Phase(NamedTuple):
    """A range of steps in which the recipe's values are constant.

    Attributes:
        first: the first step, from 0.
        end: the step after the last.
        recipe: the recipe with the values of this phase, and without phases.
        schedule: the learning rate of each step.
    """

    first: int
    end: int
    recipe: Recipe
    schedule: Schedule


@dataclass(frozen=True)
class Plan:
    """The plan of a run, in steps.

    Attributes:
        order: the examples of each batch.
        total_steps: the length of the run.
        evaluations: the steps after which an evaluation follows, in ascending order; the last one is ``total_steps``.
        validation: ids of the training examples that are held out for evaluation, int64 (n,); empty if none are.
        evaluated: the split whose examples are evaluated during training.
        phases: the phases of the whole run, in order.
    """

    order: TrainingOrder
    total_steps: int
    evaluations: tuple[int, ...]
    validation: npt.NDArray[np.int64]
    evaluated: str
    phases: tuple[Phase, ...]

    @property
    def held_out(self) -> npt.NDArray[np.int64] | None:
        """The ids of the evaluated examples, int64 (n,), or None if the whole split is evaluated."""
        return self.validation if self.evaluated == TRAINING else None

    @property
    def evaluates(self) -> str:
        """Describe which examples are evaluated during training, and what they decide."""
        held = f"{len(self.validation):,} held out" if self.evaluated == TRAINING else f"the {self.evaluated} split"
        decides = " and ".join(_decides(self.phases[0].recipe))
        if not decides:
            nothing = ", which decide nothing" if self.evaluated == TEST else ""
            decides = f"for evaluations during training{nothing}; the last weights are the result"
        return f"{plural(self.order.count, 'example')} to train on, {held} {decides}"

    def epoch(self, step: int) -> float:
        """Return the number of passes over the data after this many steps."""
        return self.order.epochs.epoch_at(step)

    def phase(self, step: int) -> Phase:
        """Return the phase of a step, counted from 0."""
        return next(phase for phase in self.phases if phase.first <= step < phase.end)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        return self.phase(step).schedule.at(step)


def plan_training(recipe: Recipe, manifest: Manifest, first_epoch: int = 0) -> Plan:
    """Plan the training of a recipe on a data set.

    Raises:
        SettingsError: a batch, a duration, the schedule, evaluations or a setting of the kind does not fit the data.
    """
    examples = manifest.split(TRAINING).records
    try:
        share = recipe.held_out_share(manifest)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    validation = held_out(recipe.seed, examples, share)
    if share and not len(validation):
        raise SettingsError(
            f"validation_share={recipe.validation_share} vs {plural(examples, 'example')} in the training split of "
            f"{manifest.dataset}: the share is less than one example; give a larger share"
        )
    without = validation
    if recipe.without_part:
        without = np.union1d(validation, part_of(examples, *map(int, recipe.without_part.split("/"))))
    left = examples - len(without)
    for _, phase in recipe.by_phase:
        if phase.batch_size > left:
            held = f" ({len(without)} are held out)" if len(without) else ""
            raise SettingsError(
                f"batch_size={phase.batch_size} vs {plural(left, 'example')} in the training split of "
                f"{manifest.dataset}{held}: a batch cannot be larger than the split; choose a smaller batch_size"
            )
        kind_of(phase).require_fit(phase, manifest)
    order = TrainingOrder(examples, recipe.batch_size, recipe.seed, without, first_epoch, _later_batch_sizes(recipe))
    total = _total_steps(recipe, order.epochs)
    evaluations = _evaluations(recipe, total, order.epochs)
    if recipe.decides_by and not recipe.evaluates:
        raise SettingsError(
            f"{recipe.decides_by} vs evaluate_every of none: {recipe.decides_by} needs evaluations during training; "
            "give evaluate_every.epochs=1"
        )
    evaluated = VALIDATION if manifest.has_validation else TRAINING if share else TEST
    return Plan(order, total, evaluations, validation, evaluated, _phases(recipe, total, order.epochs))


def plan_batches(recipe: Recipe, manifest: Manifest, reader: SplitReader, first_epoch: int = 0) -> Plan:
    """Return the plan of :func:`plan_training`; for balanced sampling, read the labels to order the examples.

    Args:
        recipe: the recipe of the run.
        manifest: the manifest of the data set.
        reader: the reader of the data set's training split.
        first_epoch: see :class:`podline.data.order.TrainingOrder`.

    Raises:
        SettingsError: see :func:`plan_training`.
        ArtifactError: a record is damaged.
    """
    plan, field = plan_training(recipe, manifest, first_epoch), recipe.task.balanced_by
    if field is None:
        return plan
    ids = plan.order.ids
    blocks = [reader.gather(ids[start : start + _BLOCK], (field,))[field] for start in range(0, len(ids), _BLOCK)]
    return replace(plan, order=plan.order.balanced(np.concatenate(blocks)))


def examples_by_phase(recipe: Recipe, examples: int) -> list[tuple[Recipe, int]]:
    """Return each phase's recipe and the number of examples in its batches, for a training split of ``examples``.

    Raises:
        SettingsError: a batch is larger than the split, the duration is 0, or the schedule does not fit the duration.
    """
    left = examples - round(recipe.validation_share * examples)
    try:
        epochs = Epochs(left, recipe.batch_size, _later_batch_sizes(recipe))
    except ValueError as error:
        raise SettingsError(str(error)) from error
    phases = _phases(recipe, _total_steps(recipe, epochs), epochs)
    return [(phase.recipe, epochs.examples_before(phase.end) - epochs.examples_before(phase.first)) for phase in phases]


def _decides(recipe: Recipe) -> Iterator[str]:
    if recipe.early_stop and recipe.early_stop.restore:
        yield "to choose the best weights"
    if recipe.early_stop and recipe.early_stop.patience:
        yield "to end the training when it stops improving"
    if recipe.schedule.plateau:
        yield "to lower the learning rate when it stops improving"
    if recipe.annealing:
        yield "to accept or reject each state"


def _total_steps(recipe: Recipe, epochs: Epochs) -> int:
    total = recipe.duration.in_steps(epochs)
    if not total:
        raise SettingsError("a duration of 0 steps trains nothing; give at least one step")
    return total


def _later_batch_sizes(recipe: Recipe) -> list[tuple[int, int]]:
    """Return the epochs at which the batch size changes, each with the new size."""
    return [
        (epoch, phase.batch_size)
        for (_, before), (epoch, phase) in itertools.pairwise(recipe.by_phase)
        if phase.batch_size != before.batch_size
    ]


def _evaluations(recipe: Recipe, total: int, epochs: Epochs) -> tuple[int, ...]:
    """Return the steps after which an evaluation follows.

    The last one follows after ``total`` steps. The others are equally far apart or, if the batch size changes and
    ``evaluate_every`` is in epochs, the n-th one follows after n times these epochs.
    """
    every = recipe.evaluate_every
    if every is None or not recipe.evaluates:
        return (total,)
    distance = every.in_steps(epochs)
    if total // distance > _MOST_EVALUATIONS:
        raise SettingsError(
            f"evaluate_every={every} vs a duration of {count(total)} steps: these are more than "
            f"{count(_MOST_EVALUATIONS)} evaluations; give a longer interval, for example evaluate_every.epochs=100"
        )
    if len(epochs.changes) == 1 or every.steps is not None:
        return (*range(distance, total, distance), total)
    steps: list[int] = []
    for number in itertools.count(1):
        # model_copy does not validate, since n times an interval may exceed the bounds of a recipe's durations.
        nth = every.model_copy(update={name: value and number * value for name, value in every}).in_steps(epochs)
        if nth >= total:
            return (*dict.fromkeys(steps), total)
        steps.append(nth)
    raise AssertionError  # the counter is infinite


def _phases(recipe: Recipe, total: int, epochs: Epochs) -> tuple[Phase, ...]:
    starts = [(round(epochs.step_at(epoch)), phase) for epoch, phase in recipe.by_phase]
    begun = [(first, phase) for first, phase in starts if first < total]
    ends = [*(first for first, _ in begun[1:]), total]
    return tuple(
        Phase(first, end, phase, _schedule(phase.schedule, range(first, end), total, epochs))
        for (first, phase), end in zip(begun, ends, strict=True)
    )


def _schedule(settings: ScheduleSettings, phase: range, total: int, epochs: Epochs) -> Schedule:
    """Return the schedule of a phase, which covers all ``total`` steps or, with ``by_phase``, only the phase."""
    covered = phase if settings.by_phase else range(total)
    return build_schedule(settings, len(covered), epochs, covered.start)
