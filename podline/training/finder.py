"""The learning-rate finder: trains a copy of the state at a rising rate, and derives a rate from the losses.

It writes ``finder.json``, ``chart.png`` and, last, its completion record to ``finder/<recipe>-<digest>``. A run whose
checkpoint it starts from stays unchanged, byte for byte.

Smith: "Cyclical Learning Rates for Training Neural Networks", WACV 2017, section 3.3, raises the rate from step to step
and looks where the loss falls and where it stops falling. A loss of one small batch is noisy, so it is smoothed.
"""

# pyright: standard
from __future__ import annotations

import functools
import io
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from scipy.signal import lfilter

from podline.base.errors import ArtifactError, DivergenceError, SettingsError
from podline.base.frozen import Frozen
from podline.base.plurals import plural
from podline.base.progress import Reporter
from podline.documents.manifest import read_manifest
from podline.ledger.inventory.catalogue import training_of
from podline.recipes.settings import Recipe, ScheduleSettings
from podline.stages.completed import complete, manifest_sha256
from podline.stages.tools import LearningRateResult, LearningRateSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.checkpoints import CheckpointFolder
from podline.training.divergence import scaled
from podline.training.optimizers import build_optimizer
from podline.training.run import Trainer, build_trainer, configure_process

DOCUMENT, CHART = "finder.json", "chart.png"
# Steps between two checks of the loss. The rate grows by a few percent per step, so a late check costs little.
_STEPS_AT_ONCE = 10
# Tolerance between the ratio of two step sizes and the ratio of their rates.
_TOLERANCE = 0.01
_Build = Callable[[list[keras.Variable]], keras.optimizers.Optimizer]
_Curve = npt.NDArray[np.float64]

# The weight of the previous average: the average covers about the last 10 losses.
_SMOOTHING = 0.9
# The search ends when the smoothed loss is this multiple of its lowest value.
_EXPLODED = 4.0
# A curve needs at least this number of losses.
LEAST_STEPS = 20
# Losses are capped at this multiple of the first ones; otherwise smoothing would spread them over earlier steps.
_MOST = 1.5
# The curve's floor begins where the loss has fallen by this share of its whole fall. The middle of the floor varies
# less between searches than the lowest point, which depends on noise.
_FLOOR = 0.9
# The blow-up begins where the loss has risen again, for good, by this share of its fall.
_LOST = 0.5
# A fall or rise below this number of standard errors of the smoothed loss counts as noise.
_CHANCE = 5.0
# The suggested rate is at most this share of the rate at which the loss blows up.
_BELOW_BLOW_UP = 4.0
# The peak of each schedule, as a share of the floor's middle; a schedule that is long at its peak gets a lower one. See
# docs/how-to/learning-rate.md for the measurements.
_SHARES = {
    "one_cycle": 1.25,
    "cosine": 1.0,
    "polynomial": 1.0,
    "restarts": 0.5,
    "exponential": 0.5,
    "step": 0.25,
    "constant": 0.25,
    "plateau": 0.25,
}


class Suggestion(Frozen):
    """A suggested learning rate and its reasons; :class:`LearningRateResult` describes these fields."""

    learning_rate: float
    floor: tuple[float, float] | None
    blow_up: float | None
    reasons: tuple[str, ...]


def find_learning_rate(spec: LearningRateSpec, reporter: Reporter) -> LearningRateResult:
    """Train at a rising rate until the loss explodes or all rates are tried; derive a rate from the losses.

    Raises:
        StoreError: the data set or the run does not exist.
        SettingsError: recipe and data or devices do not fit, or the optimizer overrides the learning rate.
        ArtifactError: the data set or the checkpoint has changed, or does not fit the recipe.
        DivergenceError: the loss exploded in fewer than :data:`LEAST_STEPS` steps, or neither fell nor rose.
    """
    started = time.monotonic()
    store = open_store(spec.root)
    manifest_sha256(store, spec.dataset_folder)
    manifest = read_manifest(store, spec.dataset_folder, spec.manifest_digest)
    strategy = configure_process(spec.recipe, spec.strategy)
    trainer = build_trainer(store, spec.dataset_folder, spec.recipe, manifest, strategy, reporter)
    if spec.run:
        _restore(spec, store, trainer)
    elif taken := trainer.load_start():
        reporter.log(f"the initial weights are those of {taken}")
    elif trainer.base:
        reporter.log(trainer.base.in_words)
    first = trainer.state.step
    trainer = trainer.for_phase_at(first)
    build = functools.partial(build_optimizer, trainer.recipe.optimizer)
    require_obedient(build, spec.low, spec.high, trainer.state.steps_before + first + spec.steps)
    rates = np.geomspace(spec.low, spec.high, spec.steps).tolist()
    losses = _losses(trainer, first, rates, reporter)
    rates = rates[: len(losses)]
    found = suggest(rates, losses, trainer.recipe.schedule)
    return _finish(spec, store, rates, losses, found, time.monotonic() - started)


def _restore(spec: LearningRateSpec, store: Store, trainer: Trainer) -> None:
    training = training_of(store, spec.run)
    folder = CheckpointFolder(store, training.folder, training.digest())
    checkpoint = folder.describe(spec.checkpoint_step)
    if checkpoint.sha256 != spec.checkpoint_sha256:
        raise SettingsError(
            f"run {spec.run}: the checkpoint of step {spec.checkpoint_step} has sha256 {checkpoint.sha256[:12]}… vs "
            f"{spec.checkpoint_sha256[:12]}… in the request; run the command again"
        )
    try:
        trainer.restore(folder.arrays(checkpoint))
    except ArtifactError as error:
        raise ArtifactError(
            f"run {spec.run}: the checkpoint of step {spec.checkpoint_step} cannot be restored: {error}; "
            "train the run again, or search without --run"
        ) from error


def require_obedient(build: _Build, low: float, high: float, steps: int) -> None:
    """Check that the optimizer's step sizes are proportional to the rate.

    If an optimizer caps its step sizes, the losses hardly depend on the rate, and no rate can be derived from them.

    Args:
        build: builds an optimizer for some variables.
        low: the lowest rate.
        high: the highest rate.
        steps: the number of the last step: some optimizers, like Keras's Adafactor, lower the cap with the step.

    Raises:
        SettingsError: the step sizes are not proportional to the rate.
    """
    (name, small), (_, large) = (_step_size(build, rate, steps) for rate in (low, high))
    asked, found = high / low, large / small if small else 0.0
    if abs(found / asked - 1) > _TOLERANCE:
        raise SettingsError(
            f"optimizer {name}: at step {steps} a rate {asked:.3g} times as high makes a step "
            f"{found:.3g} times as large; the optimizer overrides the learning rate, so no rate can be found; "
            "choose another optimizer"
        )


def _step_size(build: _Build, rate: float, steps: int) -> tuple[str, float]:
    """Return an optimizer's class name and its step size at step ``steps``, for a variable at zero.

    The variable is zero because float32 shows small changes most exactly there.
    """
    variable = keras.Variable(np.zeros((2, 2), np.float32), name="kernel")
    optimizer: Any = build([variable])
    optimizer.iterations.assign(steps - 1)
    optimizer.learning_rate = rate
    optimizer.apply([np.full((2, 2), 0.1, np.float32)], [variable])
    return type(optimizer).__name__, float(np.abs(np.asarray(variable)).max())


def _losses(trainer: Trainer, first: int, rates: Sequence[float], reporter: Reporter) -> list[float]:
    """Return the loss of each step from step ``first`` on, until the loss explodes."""
    [phase] = trainer.plan.phases
    total, batches = len(rates), trainer.batches(phase)
    losses: list[float] = []
    with batches.explained():
        parts = trainer.strategy.distribute_datasets_from_function(
            lambda context: batches.dataset(first, first + total, context=context)
        )
        steps = trainer.training_steps(parts, phase, lambda step: rates[step - first])
        while len(losses) < total:
            part = steps.advance(min(_STEPS_AT_ONCE, total - len(losses)))
            losses += part.series["loss"].tolist()
            loss = {"loss": losses[-1]} if math.isfinite(losses[-1]) else {}
            reporter.progress(len(losses), total, "steps", {**loss, "learning_rate": rates[len(losses) - 1]})
            end = explodes_at(losses)
            if end is not None:
                reporter.log(f"the loss exploded at a rate of {rates[end]:.3g}, after {plural(end, 'step')}")
                losses = losses[:end]
                break
    trainer.training_reader.require_unchanged()
    return losses


def _finish(
    spec: LearningRateSpec, store: Store, rates: list[float], losses: list[float], found: Suggestion, seconds: float
) -> LearningRateResult:
    names = [f"{spec.folder}/{name}" for name in (DOCUMENT, CHART)]
    document = {
        "spec": spec.model_dump(mode="json"),
        "suggestion": found.model_dump(mode="json"),
        "rates": rates,
        "losses": losses,
    }
    store.publish_json(names[0], document, replace=True)
    store.publish_bytes(names[1], _rate_chart(rates, losses, found, title=_title(spec)), replace=True)
    result = LearningRateResult(
        seconds=seconds,
        folder=spec.folder,
        chart=names[1],
        recipe_rate=spec.recipe.schedule.learning_rate,
        steps=len(losses),
        **found.model_dump(),
    )
    complete(store, spec.folder, spec, result, names)
    return result


def _title(spec: LearningRateSpec) -> str:
    recipe: Recipe = spec.recipe
    begins = (
        f"from step {spec.checkpoint_step} of {spec.run}"
        if spec.run
        else f"further from {recipe.further}"
        if recipe.further
        else f"from {recipe.init}"
        if recipe.init
        else "from fresh weights"
    )
    return f"{recipe.name}, {recipe.optimizer.kind}, batches of {recipe.batch_size}, {begins}"


def _moving_average(losses: npt.ArrayLike) -> _Curve:
    """Return the bias-corrected average of Kingma, Ba: "Adam", ICLR 2015, section 3; float64 (n,)."""
    values = np.asarray(losses, np.float64)
    averages: Any = lfilter([1 - _SMOOTHING], [1, -_SMOOTHING], values)
    return averages / (1 - _SMOOTHING ** np.arange(1, len(values) + 1))


def _smoothed(losses: npt.ArrayLike) -> _Curve:
    """Return the mean of the forward and backward moving averages, float64 (n,), in which minima do not shift."""
    values = np.asarray(losses, np.float64)
    return (_moving_average(values) + _moving_average(values[::-1])[::-1]) / 2


def explodes_at(losses: Sequence[float]) -> int | None:
    """Return the first step, from 0, whose loss has exploded, or None.

    A loss has exploded if it is not finite, or if its moving average is above four times the lowest average so far and
    above twice the highest one of the first :data:`LEAST_STEPS` steps. The second bound matters for trained weights,
    whose small losses vary by this much. For negative losses see :func:`podline.training.divergence.scaled`.
    """
    values = np.asarray(losses, np.float64)
    finite = np.isfinite(values)
    end = len(values) if finite.all() else int(np.argmin(finite))
    averages = _moving_average(values[:end])
    usual = float(np.max(averages[:LEAST_STEPS], initial=-math.inf))
    limits = np.maximum(scaled(np.minimum.accumulate(averages), _EXPLODED), scaled(usual, 2))
    exploded = np.flatnonzero(averages > limits)
    if exploded.size:
        return int(exploded[0])
    return None if end == len(values) else end


def suggest(rates: Sequence[float], losses: Sequence[float], schedule: ScheduleSettings) -> Suggestion:
    """Derive a learning rate from the losses of a search.

    Raises:
        DivergenceError: there are fewer than :data:`LEAST_STEPS` losses, or they change only by noise.
    """
    if len(losses) < LEAST_STEPS:
        raise DivergenceError(
            f"the loss exploded after {plural(len(losses), 'step')} with rates from {rates[0]:.3g} on, expected at "
            f"least {LEAST_STEPS} steps: begin with a lower rate, or take more steps"
        )
    bounded = np.minimum(losses, scaled(float(np.mean(losses[: LEAST_STEPS // 4])), _MOST))
    curve = _smoothed(bounded)
    bottom = int(np.argmin(curve))
    start, lowest = float(np.mean(curve[: max(bottom // 5, 1)])), float(curve[bottom])
    # Differences of neighbouring losses contain no trend, so they give the noise of the mean of two averages.
    deviation = float(np.std(np.diff(bounded[: bottom + LEAST_STEPS]))) / math.sqrt(2)
    chance, fall = _CHANCE * deviation * math.sqrt((1 - _SMOOTHING) / 2), start - lowest
    after = int(np.flatnonzero(curve <= lowest + max(_LOST * fall, chance))[-1]) + 1
    blow_up = float(rates[after]) if after < len(rates) else None
    if fall > chance:
        low = np.flatnonzero(curve <= start - _FLOOR * fall)
        floor = float(rates[low[0]]), float(rates[low[-1]])
        begun = f"the loss falls from {start:.3g} to {lowest:.3g}; nine tenths of this fall are reached at rates from"
        return _in_the_floor(floor, blow_up, schedule, begun, rates[-1])
    if blow_up is not None:
        return _below_the_blow_up(blow_up)
    raise DivergenceError(
        f"the loss neither falls nor rises from {start:.4g} with rates from {rates[0]:.3g} to {rates[-1]:.3g}; "
        "search other rates, take more steps, or look at the data"
    )


def _in_the_floor(
    floor: tuple[float, float], blow_up: float | None, schedule: ScheduleSettings, begun: str, last: float
) -> Suggestion:
    low, high = floor
    middle, share = math.sqrt(low * high), _SHARES[schedule.kind]
    rate = middle * share
    reasons = [
        f"{begun} {low:.2g} to {high:.2g}; the middle of these rates is {middle:.2g}",
        f"the peak of the schedule {schedule.kind} is {share:g} times the middle: {rate:.2g}",
    ]
    if blow_up is None:
        reasons.append(f"the loss does not blow up until the last rate, {last:.2g}")
    else:
        limit = blow_up / _BELOW_BLOW_UP
        kept = "the suggestion is below" if rate <= limit else "the suggestion is lowered to"
        reasons.append(f"the loss blows up at {blow_up:.2g}; {kept} a quarter of that rate, {limit:.2g}")
        rate = min(rate, limit)
    return Suggestion(learning_rate=_two_digits(rate), floor=floor, blow_up=blow_up, reasons=tuple(reasons))


def _below_the_blow_up(blow_up: float) -> Suggestion:
    """Suggest a rate for fully trained weights: no rate lowers their loss, but a high rate damages them."""
    return Suggestion(
        learning_rate=_two_digits(blow_up / _BELOW_BLOW_UP),
        floor=None,
        blow_up=blow_up,
        reasons=(
            "the loss falls at no rate by more than its noise: these weights were trained already",
            f"the loss blows up at {blow_up:.2g}; the suggestion is a quarter of that rate, the highest safe one",
        ),
    )


def _two_digits(rate: float) -> float:
    return float(f"{rate:.2g}")


_MUTED, _CURVE, _CHOSEN, _BLOW_UP = "#6b6b6b", "#1f6feb", "#1a7f37", "#c0392b"


def _rate_chart(rates: Sequence[float], losses: Sequence[float], found: Suggestion, title: str) -> bytes:
    with mpl.rc_context({"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.4}):
        figure = Figure(figsize=(7.2, 4.2), dpi=144, layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        smooth = _smoothed(losses)
        axes.semilogx(rates, losses, color=_CURVE, alpha=0.25, linewidth=0.8)
        axes.semilogx(rates, smooth, color=_CURVE, linewidth=1.8, label="loss, smoothed")
        if found.floor is not None:
            low, high = found.floor
            axes.axvspan(
                low, high, color=_MUTED, alpha=0.12, linewidth=0, label=f"near its lowest, {low:.2g} to {high:.2g}"
            )
        if found.blow_up is not None:
            axes.axvline(
                found.blow_up, color=_BLOW_UP, linestyle="--", linewidth=1.2, label=f"blows up, {found.blow_up:.2g}"
            )
        axes.axvline(found.learning_rate, color=_CHOSEN, linewidth=1.8, label=f"suggested, {found.learning_rate:g}")
        # A loss explosion at the end would hide the curve before it.
        first, lowest = float(np.mean(smooth[:5])), float(smooth.min())
        axes.set_ylim(min(lowest, *losses), min(max(losses), 2 * first - lowest + 0.1 * abs(first)))
        axes.set_xlabel("learning rate")
        axes.set_ylabel("loss of a step")
        axes.set_title(f"Learning rate: {found.learning_rate:g}", loc="left", fontsize=13, fontweight="bold", pad=22)
        axes.text(0, 1.03, title, transform=axes.transAxes, color=_MUTED)
        axes.legend(frameon=False, loc="best")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    return buffer.getvalue()
