"""Defines the settings of a recipe as frozen models, whose bounds are checked when they are created."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Annotated, Literal, cast

from pydantic import Field, SerializeAsAny, ValidationError, ValidationInfo, field_validator, model_validator

from podline.base.frozen import Frozen, Json, JsonObject, is_object, omitted, problem_in
from podline.documents.manifest import USUAL_KIND, Manifest
from podline.recipes import datasets
from podline.recipes.augmentations import Augmentation, AugmentationSettings
from podline.recipes.bounds import MOST, NAME
from podline.recipes.changes import with_changes
from podline.recipes.datasets import DatasetName
from podline.recipes.durations import Duration, Part
from podline.recipes.keras_optimizers import USUAL_RATES
from podline.recipes.model_settings import ModelSettings, Precision
from podline.recipes.optimizer_settings import OptimizerSettings
from podline.recipes.phases import PhaseSettings, require_changeable
from podline.recipes.promotion_settings import PromotionSettings
from podline.recipes.published_weights import Pretrained
from podline.recipes.schedule_settings import (
    WITHOUT_MEASURE,
    AnnealingSettings,
    EarlyStopSettings,
    PlateauSettings,
    ScheduleSettings,
)
from podline.recipes.task import COMMON, TaskSettings, is_usual, task_of
from podline.recipes.uses import require_effects

# The names that a recipe's file imports.
__all__ = [
    "AnnealingSettings",
    "AugmentationSettings",
    "Duration",
    "EarlyStopSettings",
    "ExplosionSettings",
    "FewSettings",
    "FitSettings",
    "InitSettings",
    "LossSettings",
    "ModelSettings",
    "OptimizerSettings",
    "Part",
    "PhaseSettings",
    "PlateauSettings",
    "PromotionSettings",
    "Recipe",
    "ScheduleSettings",
    "TaskSettings",
]

# A part's number and the number of parts, for example 1/4.
_PART = r"^([0-9]{1,3}/[1-9][0-9]{0,2})?$"
CHAMPION = "champion"
"""The value of ``further`` that stands for the recipe's champion."""


class LossSettings(Frozen):
    """The loss of a classifier.

    Attributes:
        kind: ``cross_entropy``; ``focal`` (confident right answers count less); or a loss of an installed package
            (docs/how-to/parts.md).
        gamma: exponent of ``focal``: cross-entropy times (1 - probability of the right answer) to this power.
        options: options of an installed package's loss, by name.
    """

    kind: str = Field(default="cross_entropy", pattern=NAME)
    gamma: float = omitted(2.0, gt=0, le=10)
    options: dict[str, Json] = omitted({})

    _effects = model_validator(mode="after")(functools.partial(require_effects, "loss"))


class ExplosionSettings(Frozen):
    """When a finite loss counts as exploded, and ends the run.

    Attributes:
        factor: the multiple of the usual loss above which the mean loss of a line of metrics.jsonl is too high.
        stretches: number of consecutive lines of metrics.jsonl with a loss that is too high.
    """

    factor: float = Field(default=10.0, gt=1)
    stretches: int = Field(default=3, ge=1, le=MOST)


class FitSettings(Frozen):
    """Rules that adapt values to the number of training images when a run is named; the user's values stay.

    Attributes:
        epoch_steps: least number of steps of an epoch; with fewer images, the batch becomes smaller.
        least_batch: least batch size that ``epoch_steps`` chooses, unless the whole split is smaller.
        rate: whether the learning rate falls in proportion to the batch.
        steps: least number of steps of a training; with fewer images, it takes more epochs.
        least_validation: least number of images that ``validation_share`` must hold out; with fewer, none are held out,
            and ``early_stop`` is off.
        evaluation_time: largest share of a training's time, as estimated, for evaluations; if needed, they become
            rarer.
    """

    epoch_steps: int = Field(default=1, ge=1, le=MOST)
    least_batch: int = Field(default=1, ge=1, le=1_000_000)
    rate: bool = False
    steps: int = Field(default=0, ge=0, le=100_000)
    least_validation: int = Field(default=0, ge=0, le=MOST)
    evaluation_time: float = Field(default=0.1, ge=0, le=1)


class FewSettings(Frozen):
    """Values that replace a recipe's for data sets with few training images.

    The first conversion under a data set's name fixes whether the values apply, also for later versions.

    Attributes:
        images: largest number of training images.
        side: least median of the images' longer sides, in pixels.
        changes: dotted path → value, for example ``{"model.kind": "efficientnet-lite0", "conversion.side": 160}``. The
            user's values stay. ``changes`` has no effect if the user sets a value of ``model``, the trunk or width of
            ``task.model``, initial weights, or a ``conversion.side`` below ``side``.
    """

    images: int = Field(ge=1, le=MOST)
    side: int = Field(default=1, ge=1, le=4096)
    changes: dict[str, Json] = Field(min_length=1)


class InitSettings(Frozen):
    """Initial weights from a file; layers are matched by name and shape.

    Attributes:
        file: a ``.keras``, ``.weights.h5`` or ``.npz`` file; its path does not affect the run's name.
        checksum: sha256 of the file, or md5 of some published files; filled in when the run is named.
        published: source of the published weights of ``model.weights``; filled in when the run is named.
        licence: licence of the published weights; filled in when the run is named.
    """

    file: str = Field(min_length=1)
    checksum: str = Field(default="", pattern=r"^([0-9a-f]{32}|[0-9a-f]{64})?$")
    published: str | None = omitted(None)
    licence: str | None = omitted(None)

    def __str__(self) -> str:
        return f"{self.file} ({self.licence}, published in {self.published})" if self.published else self.file


def _numbers(value: Json, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield each float in a JSON value with its dotted path."""
    if isinstance(value, float):
        yield path, value
    elif isinstance(value, list | tuple):
        value = dict(enumerate(cast("list[Json]", value)))
    for name, each in value.items() if is_object(value) else ():
        yield from _numbers(each, f"{path}.{name}".lstrip("."))


def _usual_task(validated: JsonObject) -> TaskSettings:
    """Return the default ``task`` section for the kind of the recipe's data set."""
    dataset = datasets.known(validated["dataset"])
    return task_of(dataset.kind if dataset else USUAL_KIND, {})


class Recipe(Frozen):
    """All inputs of a training run except the data.

    Attributes:
        name: name on the command line.
        dataset: name of a data set.
        conversion: the data set's own settings for its conversion, by name.
        task: settings of the kind of task; by default the defaults of the data set's kind.
        model: the network. A setting of ``task`` named model, augmentation or loss replaces the recipe's section.
        batch_size: examples in a step, over all replicas; on a TPU at least 8 per core, better 128. Each epoch leaves
            out the examples that would form an incomplete batch, such as 36 of 100 with batches of 64; these examples
            differ between epochs.
        accumulate: number of equal parts of a batch that a step computes one after another, to need less memory; their
            gradients are summed. Batch norm normalises each part alone.
        evaluation_batch_size: examples in a step of the evaluation, over all replicas.
        fit: rules that adapt values to the number of training images; with None, a split that is smaller than a batch
            is an error.
        few: other values for few training images, fewest first; the first entry that fits a data set applies.
        duration: duration of the training.
        annealing: accepts or rejects the state after each evaluation; None for off.
        early_stop: ends the run with its best state, and early if validation stops improving; None for off.
        trainable_layers: prefixes of the names of the trainable layers, with ``*`` for any letters; an empty prefix
            matches all layers. Other layers keep their weights and batch-norm statistics.
        phases: values that change from an epoch on, in order.
        ema_decay: evaluation and export use an exponential moving average of the weights with this decay, for example
            0.999; 0 for off.
        validation_share: share of the training split that is held out and evaluated during training; with 0 the test
            split is evaluated. A validation split of the data set replaces both; without one, plateau, early stop and
            annealing need a share.
        without_part: a part of the training split that is left out, for example ``1/4``; chosen by a hash.
        evaluate_every: interval of evaluations during training; None or 0: only at the end.
        measures: names of further measures that evaluations during training compute, for the curves of the report.
            Metrics of plateau and early stop are always computed.
        explosion: when a loss counts as exploded.
        checkpoint_steps: the most steps between two checkpoints.
        checkpoint_minutes: the most minutes between two checkpoints.
        keep: checkpoints that a finished run keeps: the newest N, or ``all``, one per evaluation. ``keep`` does not
            affect the run's name.
        further: a finished run of the same store, whose state and order of data this run continues, with a new step
            count, schedule and duration. ``champion``: the recipe's champion, if there is one when the training is
            first planned.
        init: a file with initial weights; layers that it does not have get random weights.
        precision: precision of the network's layers; ``auto`` is ``bfloat16`` if the device supports it. See
            docs/how-to/train.md.
        jit: compile the training step with XLA, on one device; `podline models check` shows whether a model compiles.
        seed: seed of weights, order, augmentation and dropout.
        deterministic: repeated trainings on a CPU give the same bits, but are slower.
        summary_steps: the most steps between two lines of metrics.jsonl.
        code: digests of installed code, for example ``model vit`` → digest; filled in when the run is named.
        hooks: hooks of installed packages, by name; see docs/how-to/parts.md.
        promotion: rules by which a model becomes the recipe's champion; ``promotion`` does not affect the run's name.
    """

    name: str = Field(pattern=NAME)
    dataset: DatasetName
    conversion: dict[str, Json] = omitted({})
    task: SerializeAsAny[TaskSettings] = Field(default_factory=_usual_task, exclude_if=is_usual)
    model: ModelSettings = ModelSettings()
    batch_size: int = Field(default=128, ge=1, le=1_000_000)
    accumulate: int = omitted(1, ge=1, le=1_000)
    fit: FitSettings | None = omitted(None)
    few: tuple[FewSettings, ...] = omitted(())
    evaluation_batch_size: int = Field(default=500, ge=1, le=1_000_000)
    duration: Duration = Duration(epochs=10)
    optimizer: OptimizerSettings = OptimizerSettings(momentum=0.9, nesterov=True)
    schedule: ScheduleSettings = Field(default=ScheduleSettings(), validate_default=True)
    annealing: AnnealingSettings | None = omitted(None)
    early_stop: EarlyStopSettings | None = omitted(None)
    augmentation: AugmentationSettings = AugmentationSettings()
    loss: LossSettings = omitted(LossSettings())
    trainable_layers: tuple[str, ...] = omitted(("",))
    phases: tuple[PhaseSettings, ...] = omitted(())
    ema_decay: float = Field(default=0.0, ge=0, lt=1)
    validation_share: float = omitted(0.0, ge=0, lt=1)
    without_part: str = omitted("", pattern=_PART)
    evaluate_every: Duration | None = Duration(epochs=1)
    measures: tuple[str, ...] = omitted(())
    explosion: ExplosionSettings = omitted(ExplosionSettings())
    checkpoint_steps: int = Field(default=500, ge=1, le=MOST)
    checkpoint_minutes: float = Field(default=5.0, gt=0, le=100_000)
    keep: Annotated[int, Field(ge=1, le=MOST)] | Literal["all"] = omitted(1)
    summary_steps: int = Field(default=20, ge=1, le=MOST)
    further: str | None = omitted(None, pattern=NAME)
    init: InitSettings | None = omitted(None)
    precision: Precision = omitted("float32")
    jit: bool = omitted(False)
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    deterministic: bool = False
    hooks: tuple[str, ...] = omitted(())
    code: dict[str, str] = omitted({})
    promotion: PromotionSettings = omitted(PromotionSettings())

    @model_validator(mode="after")
    def _has_finite_numbers(self) -> Recipe:
        for path, value in _numbers(self.model_dump()):
            if not math.isfinite(value):
                raise ValueError(f"got {path}={value}, expected a finite number; give None if it can be off")
        return self

    @field_validator("task", mode="before")
    @classmethod
    def _is_of_its_kind(cls, given: Json, info: ValidationInfo) -> Json:
        if not is_object(given) or "dataset" not in info.data:
            return given
        kind = given.get("kind") or _usual_task(info.data).kind
        if not isinstance(kind, str):
            raise ValueError(f"got kind={kind!r}, expected the name of a kind of task")  # noqa: TRY004 (pydantic)
        return task_of(kind, given)

    @field_validator("schedule")
    @classmethod
    def _has_the_rate_of_the_optimizer(cls, schedule: ScheduleSettings, info: ValidationInfo) -> ScheduleSettings:
        if "learning_rate" in schedule.model_fields_set or "optimizer" not in info.data:
            return schedule
        return schedule.model_copy(update={"learning_rate": USUAL_RATES.get(info.data["optimizer"].kind, 0.001)})

    @field_validator("without_part")
    @classmethod
    def _is_one_of_the_parts(cls, part: str) -> str:
        number, _, parts = part.partition("/")
        if part and int(number) >= int(parts):
            raise ValueError(f"got {part}, expected parts from 0/{parts} to {int(parts) - 1}/{parts}; give one of them")
        return part

    @model_validator(mode="after")
    def _decides_by_validation(self) -> Recipe:
        dataset = datasets.known(self.dataset)
        if dataset is not None and (dataset.published or dataset.drawn):  # these have no validation split
            self._require_validation()
        return self

    @model_validator(mode="after")
    def _goes_back_for_one_reason(self) -> Recipe:
        if self.annealing and self.early_stop:
            raise ValueError("annealing vs early_stop: each restores states by its own rule; leave one of them out")
        return self

    @model_validator(mode="after")
    def _begins_with_one(self) -> Recipe:
        if self.further and self.init and not self.init.published:
            raise ValueError(
                f"further={self.further} vs init={self.init.file}: a run can begin with only one; leave one out"
            )
        return self

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Recipe:
        dataset = datasets.known(self.dataset)
        if dataset is not None and self.kind != dataset.kind:
            raise ValueError(
                f"dataset={self.dataset} vs task.kind={self.kind}: expected the data set's kind, {dataset.kind}"
            )
        for name in COMMON:
            if name not in self.task.common and getattr(self, name) != type(self).model_fields[name].default:
                own = f"set task.{name}" if name in type(self.task).model_fields else f"leave {name} out"
                raise ValueError(f"the kind {self.kind} of dataset={self.dataset} has no use for {name}; {own}")
        if self.augmentation.mixes and not self.task.mixes_targets:
            raise ValueError(
                f"augmentation: mixup={self.augmentation.mixup} and cutmix={self.augmentation.cutmix} mix the targets "
                f"of two examples, but the kind {self.kind} of dataset={self.dataset} cannot mix them; leave both out"
            )
        deciding = self.schedule.plateau, self.annealing, self.early_stop
        if any("error" in dict(settings).values() for settings in deciding if settings) and not self.task.has_error:
            raise ValueError(
                f"error is the share of wrong answers, and an answer of the kind {self.kind} of dataset={self.dataset} "
                "is not simply right or wrong; use loss"
            )
        self.task.require_fit(self.loss.kind)
        return self

    @model_validator(mode="after")
    def _phases_fit(self) -> Recipe:
        require_changeable(self.phases, self.task.may_change)
        goes_back = (
            "annealing" if self.annealing else "early_stop" if self.early_stop and self.early_stop.restore else ""
        )
        for (epoch, _), (later, recipe) in itertools.pairwise(self.by_phase):
            if later <= epoch:
                raise ValueError(f"phases: epoch {epoch} is followed by epoch {later}; give phases in ascending order")
            if recipe.schedule.plateau != self.schedule.plateau:
                raise ValueError(
                    f"phases: from epoch {later}: a plateau is for the whole run; set schedule.plateau once"
                )
            if goes_back and recipe.optimizer != self.optimizer:
                raise ValueError(
                    f"phases: from epoch {later}: {goes_back} restores earlier states, so the optimizer must not "
                    "change; leave one of them out"
                )
        return self

    @property
    def pretrained(self) -> Pretrained | None:
        """Return the network that begins with published weights unless ``init`` or ``further`` is given; or None."""
        return self.task.pretrained if self.model.weights == "none" else Pretrained(self.model.kind)

    def held_out_share(self, manifest: Manifest) -> float:
        """Return the share of the training split to hold out: 0 if the data set has a validation split.

        Raises:
            ValueError: plateau, early stop or annealing is set, but only the test split could be evaluated.
        """
        if manifest.has_validation:
            return 0.0
        self._require_validation()
        return self.validation_share

    def _require_validation(self) -> None:
        if self.decides_by and not self.validation_share:
            raise ValueError(
                f"{self.decides_by} vs validation_share=0: it needs examples that are held out from training, since "
                "it must not use the test split; give validation_share=0.1"
            )

    @property
    def kind(self) -> str:
        """The kind of task of the data set."""
        return self.task.kind

    @property
    def image_augmentation(self) -> Augmentation:
        """The random augmentation, for any kind of task."""
        own = getattr(self.task, "augmentation", None)
        return own if isinstance(own, Augmentation) else self.augmentation

    @property
    def by_phase(self) -> tuple[tuple[int, Recipe], ...]:
        """Pairs (first epoch, recipe without phases) for the beginning of the run, at epoch 0, and for each phase.

        Raises:
            ValueError: a phase has an invalid value, or ``from_share`` although the run's length is not in epochs.
        """
        recipe: Recipe = self.model_copy(update={"phases": ()})
        found: list[tuple[int, Recipe]] = [(0, recipe)]
        for phase in self.phases:
            begins = phase.begins(self.duration)
            try:
                recipe = Recipe.model_validate(with_changes(recipe.model_dump(), phase.changes))
            except ValidationError as error:
                problem = problem_in(error)
                where = "".join(f"{part}." for part in problem.loc)[:-1] or "recipe"
                raise ValueError(f"phases: from epoch {begins}: {where}: {problem.msg}") from None
            if phase.from_share is not None and found[-1][0] == begins:
                found.pop()  # the run is too short for the previous phase
            found.append((begins, recipe))
        return tuple(found)

    @property
    def held_out_measures(self) -> tuple[str, ...]:
        """The names of measures that evaluations during training compute, with those of plateau and early stop."""
        deciding = [each.metric for each in (self.schedule.plateau, self.early_stop) if each]
        names = dict.fromkeys((*self.measures, *deciding))
        return tuple(name for name in names if name not in WITHOUT_MEASURE)

    @property
    def evaluates(self) -> bool:
        """Return whether there are evaluations during training, not only at the end."""
        return self.evaluate_every is not None and self.evaluate_every.amount > 0

    @property
    def decides_by(self) -> str:
        """The first setting that decides by evaluations during training: plateau, annealing or early stop; or empty."""
        found = {
            "schedule.kind=plateau": self.schedule.kind == "plateau",
            "annealing": self.annealing,
            "early_stop": self.early_stop,
        }
        return next((name for name, decides in found.items() if decides), "")
