"""Rules that detect problems of a running training, and the record of their findings.

docs/reference/findings.md describes every finding. This module does not need TensorFlow.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from podline.documents.intervals import wilson_interval
from podline.documents.metrics_log import EvaluationLine, FindingKind, FindingLine, MetricsLine, StepsLine
from podline.training.loop import Hook, Stretch

# Share of a layer's channels that are zero for every image of the probe.
DEAD_SHARE = 0.5
# Largest magnitude of a healthy output; half precision ends at 65,504.
EXPLODING_OUTPUT = 1e4
# Least variation of an answer over the images of the probe, as a share of the answer's size.
COLLAPSED_SPREAD = 0.01
# The device waits for input: least share of the time, least seconds, and the number of latest stretches.
WAITING_SHARE, WAITING_SECONDS, WAITING_STRETCHES = 0.2, 2.0, 5
# A block's gradient as a share of the whole gradient.
VANISHING_GRADIENT = 1e-6
# Ratio of a stretch's gradient to the largest earlier one, and the number of stretches before the rule applies.
EXPLODING_GRADIENT, USUAL_STRETCHES = 100.0, 5
# Overfitting must show in this number of latest evaluations, after at least this number of earlier evaluations.
OVERFITTING_EVALUATIONS, EARLIER_EVALUATIONS = 3, 1
# Least number of evaluated examples, since a few examples may all be hard.
OVERFITTING_EXAMPLES = 50
# Rise of the evaluation's loss above its minimum, as a share of the minimum.
RISEN = 0.1
# Accuracy on training examples minus the upper 95 % limit of the evaluated accuracy; the second if the loss has risen.
ACCURACY_GAP, ACCURACY_GAP_RISEN = 0.05, 0.02

_OF_MEASURES: tuple[FindingKind, ...] = ("collapsed_stage",)
_OF_LAYERS: tuple[FindingKind, ...] = ("dead_outputs", "exploding_outputs", "collapsed_output")
_OF_STRETCHES: tuple[FindingKind, ...] = ("waiting_for_input", "vanishing_gradient", "exploding_gradient")
_BLOCK = "gradient_norm/"


class Finding(NamedTuple):
    """A problem that a rule found; :class:`podline.documents.metrics_log.FindingLine` describes its fields."""

    finding: FindingKind
    where: str
    figures: dict[str, float]
    message: str
    suggestion: str


class Findings:
    """The open findings of a run.

    A line is written when a finding begins and when it ends; the first time, a warning is logged as well.
    """

    def __init__(self, write: Callable[[FindingLine], None], warn: Callable[[str], None]) -> None:
        self._write, self._warn = write, warn
        self._open: dict[tuple[FindingKind, str], FindingLine] = {}
        self._known: set[tuple[FindingKind, str]] = set()

    def judged(self, kinds: Sequence[FindingKind], step: int, found: Iterable[Finding]) -> None:
        """Open the findings ``found`` after a step; end the open findings of ``kinds`` that are not in ``found``."""
        current = {(each.finding, each.where): each for each in found}
        for key, finding in current.items():
            if key not in self._known:
                self._warn(f"step {step}: {finding.message}; {finding.suggestion}")
            if key not in self._open:
                self._put(FindingLine(**finding._asdict(), step=step, time=time.time()))
        for key, line in list(self._open.items()):
            if key[0] in kinds and key not in current:
                self._put(line.model_copy(update={"step": step, "over": True, "time": time.time()}))

    def _put(self, line: FindingLine) -> None:
        self._write(line)
        self.note(line)

    def note(self, line: MetricsLine) -> None:
        """Restore the open findings of an interrupted run from a line of its metrics log."""
        if not isinstance(line, FindingLine):
            return
        key = (line.finding, line.where)
        self._known.add(key)
        if line.over:
            self._open.pop(key, None)
        else:
            self._open[key] = line


class LayerFigures(NamedTuple):
    """A layer's statistics for the images of the probe.

    Attributes:
        name: name of the layer.
        channels: number of channels of its output.
        dead: number of channels that are zero for every image, if the layer's activation has a zero range; else 0.
        largest: largest magnitude of its output.
    """

    name: str
    channels: int
    dead: int
    largest: float


class ProbeFigures(NamedTuple):
    """A model's statistics for a few fixed images.

    Attributes:
        images: number of images.
        layers: in the order of the model.
        spreads: for each output of the model, its standard deviation over the images, as a share of its root mean
            square; 0 for an output that is all zero.
    """

    images: int
    layers: Sequence[LayerFigures]
    spreads: Mapping[str, float]


def judge_probe(findings: Findings, step: int, probe: ProbeFigures) -> None:
    """Record layers with dead or exploding outputs, and model outputs that hardly depend on the image."""
    findings.judged(_OF_LAYERS, step, [*_dead(probe), *_exploding(probe), *_collapsed(probe)])


def _dead(probe: ProbeFigures) -> Iterable[Finding]:
    for layer in probe.layers:
        share = layer.dead / layer.channels
        if share >= DEAD_SHARE:
            yield Finding(
                "dead_outputs",
                layer.name,
                {"share": share, "channels": layer.channels},
                f"{layer.dead} of the {layer.channels} channels of layer {layer.name} are zero for all "
                f"{probe.images} images of the probe",
                "dead channels no longer learn: use a lower learning rate or a longer warm-up; if they were always "
                "zero, check the layer's initial weights and input",
            )


def _exploding(probe: ProbeFigures) -> Iterable[Finding]:
    # The layers after an exploding layer explode as well.
    layer = next((layer for layer in probe.layers if layer.largest > EXPLODING_OUTPUT), None)
    if layer:
        yield Finding(
            "exploding_outputs",
            layer.name,
            {"largest": layer.largest},
            f"layer {layer.name} gives values of up to {layer.largest:.3g}, expected at most {EXPLODING_OUTPUT:g}",
            "add a normalisation after the layer or weight decay, or lower the learning rate; half precision would "
            "overflow",
        )


def _collapsed(probe: ProbeFigures) -> Iterable[Finding]:
    for name, spread in probe.spreads.items():
        # A single image has no variation.
        if spread < COLLAPSED_SPREAD and probe.images > 1:
            yield Finding(
                "collapsed_output",
                name,
                {"spread": spread},
                f"the model gives nearly the same output for all {probe.images} images of the probe: {name} varies by "
                f"{spread:.2g} of its size",
                "the model ignores the image: train again with a lower learning rate or a longer warm-up; if that does "
                "not help, check the labels and the balance of the classes",
            )


@runtime_checkable
class _JudgesMeasures(Protocol):
    """An objective whose measures show problems that its loss does not show."""

    def faults(self, measures: Mapping[str, float]) -> Iterable[Finding]:
        """Return the problems that the measures of an evaluation show, once the warm-up is over."""
        ...


def judge_measures(findings: Findings, evaluation: EvaluationLine, objective: object, warmup: int) -> None:
    """Record the findings of an objective with ``faults`` after the warm-up, before which outputs may be near zero."""
    if isinstance(objective, _JudgesMeasures) and evaluation.step > warmup:
        findings.judged(_OF_MEASURES, evaluation.step, objective.faults(evaluation.measures))


class _Fit(NamedTuple):
    """An evaluation, and the training steps since the previous evaluation.

    Attributes:
        line: the evaluation.
        loss: mean training loss of the steps.
        accuracy: accuracy on the augmented examples of the steps; NaN without classes.
    """

    line: EvaluationLine
    loss: float
    accuracy: float

    def fits_better(self, risen: bool) -> bool:
        """Return whether the training accuracy exceeds the evaluated one by more than sampling noise plus a gap.

        ``risen``: whether the evaluated loss has risen, which makes the gap smaller.
        """
        right = round(self.line.accuracy * self.line.examples)
        high = wilson_interval(right, self.line.examples).high
        return self.accuracy > high + (ACCURACY_GAP_RISEN if risen else ACCURACY_GAP)


class JudgeOverfitting:
    """Compares the training examples with the evaluated ones, after each evaluation."""

    def __init__(self, findings: Findings, helps: Sequence[str]) -> None:
        """Begin without evaluations; ``helps`` are remedies against overfitting, for the suggestion."""
        self._findings, self._helps = findings, helps
        self._fits, self._steps = list[_Fit](), list[StepsLine]()

    def note(self, line: MetricsLine) -> None:
        """Add a line of the run: training steps, or an evaluation after at least one step; ignore other lines."""
        if isinstance(line, StepsLine):
            self._steps.append(line)
        elif isinstance(line, EvaluationLine) and self._steps:
            weights = [len(steps.losses) for steps in self._steps]
            loss, accuracy = (
                float(np.average([getattr(steps, name) for steps in self._steps], weights=weights))
                for name in ("loss", "accuracy")
            )
            self._fits.append(_Fit(line, loss, accuracy))
            self._steps = []

    def judge(self, step: int) -> None:
        """Record whether the model overfits; :meth:`note` must already have the step's evaluation."""
        latest, earlier = self._fits[-OVERFITTING_EVALUATIONS:], self._fits[:-OVERFITTING_EVALUATIONS]
        found = list[Finding]()
        if len(earlier) >= EARLIER_EVALUATIONS and latest[-1].line.examples >= OVERFITTING_EXAMPLES:
            lowest = min(earlier, key=lambda fit: fit.line.loss)
            limit = lowest.line.loss + RISEN * abs(lowest.line.loss)
            risen = latest[-1].loss < lowest.loss and all(fit.line.loss > limit for fit in latest)
            overfits = risen if np.isnan(latest[-1].accuracy) else all(fit.fits_better(risen) for fit in latest)
            found = [self._finding(latest[-1], lowest if risen else None)] if overfits else []
        self._findings.judged(("overfitting",), step, found)

    def _finding(self, last: _Fit, lowest: _Fit | None) -> Finding:
        line, said = last.line, list[str]()
        shown = {"loss": line.loss, "training_loss": last.loss}
        if not np.isnan(last.accuracy):
            shown |= {"accuracy": line.accuracy, "training_accuracy": last.accuracy}
            said.append(
                f"{last.accuracy:.1%} of the training examples are right vs {line.accuracy:.1%} of the "
                f"{line.examples:,} {line.split} examples"
            )
        if lowest:
            shown["lowest_loss"] = lowest.line.loss
            said.append(
                f"the {line.split} loss has risen from {lowest.line.loss:.3g} at step {lowest.line.step:,} to "
                f"{line.loss:.3g}, while the training loss fell from {lowest.loss:.3g} to {last.loss:.3g}"
            )
        return Finding(
            "overfitting", line.split, shown, f"the model overfits: {'; '.join(said)}", "; ".join(self._helps)
        )


class JudgeStretches(Hook):
    """Checks each stretch for training that waits for input, and for vanishing or exploding gradients."""

    reads = ("gradient_norm",)

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._seen, self._most = 0, 0.0
        self._latest: deque[Stretch] = deque(maxlen=WAITING_STRETCHES)
        self._is_first = True

    def note(self, line: MetricsLine) -> None:
        """Restore the largest gradient norm and the number of stretches from a line of an interrupted run's log."""
        if isinstance(line, StepsLine):
            self._seen, self._most = self._seen + 1, max(self._most, line.gradient_norm)

    def after(self, stretch: Stretch) -> None:
        """Record the findings of a stretch."""
        if not self._is_first:  # the first stretch waits for the input to begin
            self._latest.append(stretch)
        self._is_first = False
        norm = float(np.mean(stretch.series["gradient_norm"], dtype=np.float64))
        found = [*_waiting(self._latest), *_vanishing(stretch, norm), *self._exploded(norm)]
        self._seen, self._most = self._seen + 1, max(self._most, norm)
        self._findings.judged(_OF_STRETCHES, stretch.step, found)

    def rehearse(self, stretch: Stretch) -> None:
        """Check a stretch without recording anything."""
        _ = [*_vanishing(stretch, 1.0)]

    def _exploded(self, norm: float) -> Iterable[Finding]:
        if self._seen >= USUAL_STRETCHES and norm > EXPLODING_GRADIENT * self._most:
            yield Finding(
                "exploding_gradient",
                "all",
                {"norm": norm, "largest_before": self._most},
                f"the norm of the gradient is {norm:.3g} vs {self._most:.3g} at most in all earlier stretches",
                "set clip_norm to bound it, or use a lower learning rate or a longer warm-up",
            )


def _waiting(latest: Sequence[Stretch]) -> Iterable[Finding]:
    waiting, seconds = sum(stretch.waiting for stretch in latest), sum(stretch.seconds for stretch in latest)
    if waiting >= WAITING_SECONDS and waiting >= WAITING_SHARE * seconds:
        yield Finding(
            "waiting_for_input",
            "input",
            {"share": waiting / seconds, "seconds": waiting},
            f"training waited for input in {waiting / seconds:.0%} of the last {seconds:.0f} s",
            "`podline tune input` shows the slow stage; use a faster disk, less augmentation or a data set in memory",
        )


def _vanishing(stretch: Stretch, norm: float) -> Iterable[Finding]:
    for name, values in stretch.series.items():
        block = name.removeprefix(_BLOCK)
        share = float(np.mean(values, dtype=np.float64)) / norm if norm else 0.0
        if name.startswith(_BLOCK) and share < VANISHING_GRADIENT:
            yield Finding(
                "vanishing_gradient",
                block,
                {"share": share},
                f"the layers of {block} get {share:.2g} of the gradient",
                "these layers do not learn: look for dead outputs after them, or for layers whose output is not used",
            )
