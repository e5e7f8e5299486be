"""Implements ``podline models check``: tries training, resuming, publishing, replicas and exports on random images.

The checks run in this process, except that two new processes load a published model of a package. If a check fails, its
cause is reported, and the remaining checks still run; without a trained model, most of them are skipped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from podline.base.arrays import Array, Tensor
from podline.base.errors import ArtifactError, PodlineError, SettingsError, one_line
from podline.base.figures import short_count
from podline.base.plurals import plural
from podline.base.progress import Reporter
from podline.champions.exports import flat, in_batches, largest, lite_file, lite_model
from podline.contract.objective import Batch, Objective
from podline.data.records import IMAGE, LABEL
from podline.evaluation.grad_cam import place_weights
from podline.models.build import build_model
from podline.models.counts import described
from podline.models.initial_values import SEED_STATE
from podline.models.layer_checks import require_logits
from podline.models.layer_copies import exportable
from podline.recipes.settings import OptimizerSettings, Precision
from podline.stages.tools import CheckedPart, ModelCheck, ModelCheckSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training import devices
from podline.training.publication import require_reloadable
from podline.training.state import TrainingState
from podline.training.steps import TrainingSteps

_BATCH, _BATCHES, _STEPS, _RATE = 8, 4, 4, 1e-3
# Largest allowed differences: of the loss on replicas (another order of additions), of the loss in bfloat16 (8-bit
# significand), and of TFLite's outputs.
_OF_REPLICAS, _OF_BFLOAT16, _OF_LITE = 1e-3, 0.1, 1e-3
# Patterns for the name of the unsupported operation in messages of XLA and of the TFLite converter.
_OPERATIONS = (
    r"unsupported operations[^:]*: (\w+)",
    r"'tf\.(\w+)' op",
    r"\b(?:tf|Flex)(TensorList\w+)",
    r"Op type: (\w+)",
)


class _CrossEntropy(Objective):
    fields = (IMAGE, LABEL)

    def terms(self, batch: Batch, outputs: Tensor) -> Batch:
        require_logits(outputs)
        return {"loss": tf.nn.sparse_softmax_cross_entropy_with_logits(batch[LABEL], outputs)}


def check(spec: ModelCheckSpec, reporter: Reporter) -> ModelCheck:
    """Try training, resuming, publishing, replicas, bfloat16, XLA and TFLite with a network.

    Raises:
        SettingsError: the network cannot be built.
    """
    started = time.monotonic()
    # Two devices for the replicas; deterministic, so that a resumed training is equal to the bit.
    strategy = devices.prepare(spec.recipe.seed, deterministic=True, strategy="cpu:2")
    trial = _Trial(spec, open_store(spec.root), strategy, reporter)
    parts = []
    for name, tried in trial.parts():
        reporter.log(f"{spec.recipe.model.kind}: {name}")
        begun = time.monotonic()
        works, words = _outcome(tried)
        parts.append(CheckedPart(name=name, works=works, words=words, seconds=time.monotonic() - begun))
    return ModelCheck(
        model=spec.recipe.model.kind,
        image_shape=spec.image_shape,
        classes=spec.classes,
        parts=tuple(parts),
        seconds=time.monotonic() - started,
    )


def _outcome(tried: Callable[[], str]) -> tuple[bool | None, str]:
    try:
        return True, tried()
    except _Inapplicable as error:
        return None, str(error)
    except PodlineError as error:
        return False, str(error)
    except Exception as error:
        # Keras, XLA and the converter raise exceptions of any class for what they do not support.
        named = next((found for each in _OPERATIONS if (found := re.search(each, str(error)))), None)
        words = f"{type(error).__name__}: {one_line(error)}"
        return False, f"the operation {named[1]} is not supported" if named else words


class _Inapplicable(Exception):  # noqa: N818 (not an error)
    """The check does not apply to this model, or not on this machine."""


class _Trial:
    """A network, random images and the checks."""

    def __init__(
        self, spec: ModelCheckSpec, store: Store, strategy: tf.distribute.Strategy, reporter: Reporter
    ) -> None:
        self._spec, self._store, self._strategy, self._reporter = spec, store, strategy, reporter
        draw = np.random.default_rng(spec.recipe.seed)
        count = _BATCH * _BATCHES
        self._images: Array = draw.integers(0, 256, (count, *spec.image_shape), dtype=np.uint8)
        self._labels: Array = draw.integers(0, spec.classes, count)
        self._one = tf.distribute.get_strategy()
        self._model, self._losses = self._built(), np.zeros(0)
        self._state_after: TrainingState | None = None

    def parts(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield name and function of each check; most checks need the trained model."""
        yield "builds twice alike", self._builds
        yield "trains", self._trains
        for name, tried in (
            ("publishes", self._publishes),
            ("resumes bit for bit", self._resumes),
            ("trains on two devices", self._replicas),
            ("trains in bfloat16", self._bfloat16),
            ("compiles with XLA", self._compiles),
            ("converts to TFLite", self._converts),
            ("shows where it looks", self._looks),
        ):
            yield name, tried if self._state_after else self._untrained
        yield "counts multiply-adds", self._counts

    def _untrained(self) -> str:
        raise _Inapplicable("not tried, since the model does not train")

    def _built(self, precision: Precision = "float32") -> keras.Model:
        channels, spec = self._spec.image_shape[-1], self._spec
        usual = [127.5] * channels, [64.0] * channels
        return build_model(spec.recipe.model, spec.image_shape, spec.classes, *usual, spec.recipe.seed, precision)

    def _state(self, strategy: tf.distribute.Strategy, precision: Precision = "float32") -> TrainingState:
        keras.utils.set_random_seed(self._spec.recipe.seed)  # as in a new process
        with strategy.scope():
            return TrainingState(self._built(precision), OptimizerSettings(), average_decay=0.9)

    def _advance(
        self, state: TrainingState, strategy: tf.distribute.Strategy, count: int = _STEPS, *, jit: bool = False
    ) -> Array:
        """Train ``count`` steps from the step of ``state`` on; return the losses, (count,)."""

        def part(context: tf.distribute.InputContext) -> tf.data.Dataset:
            arrays: Any = {IMAGE: self._images, LABEL: self._labels}
            records = tf.data.Dataset.from_tensor_slices(arrays)
            whole = records.repeat().skip(state.step * _BATCH)
            return whole.batch(_BATCH // context.num_replicas_in_sync, drop_remainder=True)

        parts = strategy.distribute_datasets_from_function(part)
        steps = TrainingSteps(strategy, state, lambda _step: _RATE, _CrossEntropy(), parts, _BATCH, jit=jit)
        losses = steps.advance(count).series["loss"]
        if not np.isfinite(losses).all():
            raise ArtifactError(f"the losses of {count} steps are {', '.join(f'{loss:g}' for loss in losses)}")
        return losses

    def _builds(self) -> str:
        for first, second in zip(self._model.weights, self._built().weights, strict=True):
            if first.numpy().tobytes() != second.numpy().tobytes():
                raise SettingsError(
                    f"two builds with the same seed differ in {first.path}; give its initializer a seed"
                )
        return plural(self._model.count_params(), "parameter")

    def _trains(self) -> str:
        state = self._state(self._one)
        self._losses, self._state_after = self._advance(state, self._one), state
        return f"loss {self._losses[0]:.3f} to {self._losses[-1]:.3f} in {plural(_STEPS, 'step')}"

    @property
    def _trained(self) -> TrainingState:
        assert self._state_after is not None  # noqa: S101 (see parts)
        return self._state_after

    def _publishes(self) -> str:
        state = self._trained
        require_reloadable(self._store, self._spec.recipe, state.evaluated, self._images[:_BATCH], self._reporter)
        return "two new processes load equal values and answers" if self._spec.recipe.code else "as each built-in model"

    def _resumes(self) -> str:
        begun = self._state(self._one)
        self._advance(begun, self._one, _STEPS // 2)
        resumed = self._state(self._one)
        resumed.restore(begun.snapshot())
        self._advance(resumed, self._one, _STEPS - _STEPS // 2)
        expected, found = self._trained.snapshot(), resumed.snapshot()
        differing = next((name for name in expected if expected[name].tobytes() != found[name].tobytes()), None)
        if differing:
            raise ArtifactError(
                f"{differing} differs after a resumed training; give each random operation of a layer a "
                "keras.random.SeedGenerator, made in its __init__"
            )
        return f"equal after {plural(_STEPS, 'step')}, with and without an interruption"

    def _replicas(self) -> str:
        return self._compared(self._advance(self._state(self._strategy), self._strategy), _OF_REPLICAS)

    def _bfloat16(self) -> str:
        try:
            state = self._state(self._one, "bfloat16")
        except SettingsError as error:
            if "would be emulated" in str(error):
                raise _Inapplicable(str(error)) from error
            raise
        losses = self._advance(state, self._one)
        if any(SEED_STATE in variable.path for variable in self._model.variables):
            return f"losses differ by {self._difference(losses):.2g} at most (bfloat16 may draw other random numbers)"
        return self._compared(losses, _OF_BFLOAT16)

    def _compared(self, losses: Array, allowed: float) -> str:
        """Compare losses with those of one device in float32; raise ArtifactError if they differ more than allowed."""
        difference = self._difference(losses)
        if difference > allowed:
            raise ArtifactError(f"losses differ by {difference:.2g}, expected {allowed:g} at most")
        return f"losses differ by {difference:.2g} at most"

    def _difference(self, losses: Array) -> float:
        sizes = np.maximum(np.abs(self._losses), np.finfo(np.float32).tiny)  # with one class, all losses are 0
        return float(np.max(np.abs(losses - self._losses) / sizes))

    def _compiles(self) -> str:
        losses = self._advance(self._state(self._one), self._one, jit=True)
        return f"losses differ by {self._difference(losses):.2g} at most (XLA draws other random numbers)"

    def _converts(self) -> str:
        model, images = exportable(self._trained.evaluated), self._images[:_BATCH]
        data = lite_file(self._store, model)
        answers = [
            in_batches(each, images) for each in (lambda batch: flat(model(batch, training=False)), lite_model(data))
        ]
        difference, size = largest(*answers), max(1.0, *(float(np.abs(each).max()) for each in answers[0]))
        if not difference <= _OF_LITE * size:
            raise ArtifactError(
                f"TFLite's outputs differ by {difference:.2g} from the model's, at most {_OF_LITE * size:.2g} allowed; "
                "do not set promotion.tflite"
            )
        return f"answers differ by {difference:.2g} at most"

    def _counts(self) -> str:
        description = described(self._model)
        return f"{short_count(description.multiply_adds)} an image {description.uncounted}".rstrip()

    def _looks(self) -> str:
        weights: Any = place_weights(self._trained.evaluated, self._images[:2])
        if weights is None:
            raise _Inapplicable("the model has no feature maps, or mixes positions after the last feature maps")
        rows, columns = weights.shape[1:]
        return f"feature maps of {rows} × {columns} positions"
