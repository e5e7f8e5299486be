"""Explains why a run is worse than another: lost examples, worse classes, diverging curves.

Both runs must have been evaluated on the same examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.reader import open_split
from podline.datasets.census import change_between
from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.completion import local_artifact
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.metrics_log import METRICS, EvaluationLine, MetricsLine, StepsLine, read_metrics
from podline.documents.origins import ORIGIN, read_origin
from podline.documents.promotion import read_promotion
from podline.evaluation.differences import Chance, Difference
from podline.figures import change_text, count, percent
from podline.frozen import Frozen
from podline.inventory.catalogue import training_of
from podline.kinds.contract import Kind
from podline.kinds.table import kind_by_measure, kind_of, read_evaluation
from podline.ledger.differences import NamedDifference, differing
from podline.measures import measure_named
from podline.reporting.pairs import LostExample, MovedPart, Pair, judgement, moved_parts, paired
from podline.reporting.seed_spread import SeedSpread, spread_of
from podline.stages.specs import JUDGED, TrainSpec
from podline.store.contract import Store

if TYPE_CHECKING:
    from podline.drawing.picture_sheet import Picture, Sheet

_IN_A_ROW, _PAIRS_IN_A_ROW = 8, 2
_WRONG = "#c0392b"
_RULES = "promotion."
_BY_SEED = ", which may be caused by the seed"

Image = npt.NDArray[np.uint8]


class Gap(Frozen):
    """The largest gap between two training curves: the quantity, and both values at one step."""

    what: str
    step: int
    before: float
    after: float


class Drop(Frozen):
    """The comparison of a run with a better one.

    Attributes:
        run: name of the run.
        against: name of the other run.
        measure: name of the main metric.
        difference: of the metric: this run's minus the other's.
        lost: number of examples, or people, that only the other run got right.
        gained: number that only this run got right.
        parts: every class or joint, largest loss first.
        examples: some of the lost examples: the most confident ones of the other run, or images with the most lost
            joints.
        gaps: gaps between the training curves.
        differences: in settings, data, code and environment; None if a run does not record them.
    """

    run: str
    against: str
    measure: str
    difference: Difference
    lost: int
    gained: int
    parts: tuple[MovedPart, ...]
    examples: tuple[LostExample, ...]
    gaps: tuple[Gap, ...]
    differences: tuple[NamedDifference, ...] | None

    @property
    def worse(self) -> Chance:
        """Return whether the run is worse, overall or in a part: beyond noise, perhaps by the seed, or not."""
        worse = measure_named(self.measure).better(0, self.difference.value)
        fell = [self.difference.chance] if worse else []
        fell += [part.chance for part in self.parts if part.change < 0]
        return "beyond" if "beyond" in fell else "seed" if "seed" in fell else "noise"

    @property
    def _kind(self) -> Kind:
        return kind_by_measure(self.measure)

    def about_pictures(self) -> str:
        """Describe the pictures of examples."""
        says = self._kind.says
        return f"✓ {says.format(self.against)}, ✗ {says.format(self.run)}{self._kind.lost_hint}"

    def headline(self) -> str:
        """Return the drop in one sentence."""
        name = measure_named(self.measure).label
        way = "lower" if self.difference.value < 0 else "higher"
        by = change_text(self.measure, abs(self.difference.value)).removeprefix("+")
        held = f"{by} {way} {name} than" if self.difference.value else f"the same {name} as"
        chance = {
            "noise": "which could be noise",
            "seed": "which may be caused by the seed, as its spread is not known",
            "beyond": "which is more than noise",
        }[self.difference.chance]
        what = self._kind.examples
        return (
            f"{self.run} has {held} {self.against}, {chance} "
            f"(p = {self.difference.p_value:.2g}): {count(self.lost)} {what} lost, {count(self.gained)} gained."
        )

    def heading(self) -> str:
        """Return the heading of the pictures."""
        return self._kind.lost.format(shown=count(len(self.examples)), lost=count(self.lost))

    def lines(self) -> list[str]:
        """Return the whole comparison as lines of text."""
        moved = [part for part in self.parts if part.chance != "noise"]
        told = [self.headline()]
        told += [
            f"{part.name}: {percent(part.before)} → {percent(part.after)}{_BY_SEED if part.chance == 'seed' else ''}"
            for part in moved
        ]
        told += self._produced()
        told += [
            f"curves of the {gap.what} are furthest apart at step {gap.step}: {gap.before:.4g} → {gap.after:.4g}"
            for gap in self.gaps
        ]
        told += [f"record {lost.record}, {lost.name}: {lost.before} → {lost.after}" for lost in self.examples]
        return told

    def _produced(self) -> list[str]:
        """Describe the differences in settings, data and code."""
        if self.differences is None:
            return [f"settings, data, code, environment: not compared, as one of the runs has no {ORIGIN}"]
        told = [f"{row.area}: {row.name}: {' → '.join(row.values)}" for row in self.differences]
        return told or ["settings, data, code and environment are the same"]


class Explained(NamedTuple):
    """A drop, and the pictures of ``drop.examples``.

    Attributes:
        drop: the drop without pictures.
        pictures: per example, uint8 (height, width, channels): the image, or, for a pose network, one picture with the
            people of each run, the other run's first.
        looked_at: each image with colours on the places that support this run's answer, if available.
    """

    drop: Drop
    pictures: tuple[tuple[Image, ...], ...]
    looked_at: tuple[Image, ...] = ()

    def picture_sheet(self) -> Sheet:
        """Draw the lost examples as one figure."""
        # Imported here, since flows should not wait for matplotlib.
        from podline.drawing.picture_sheet import LARGE, SMALL, Block, PictureRow, sheet  # noqa: PLC0415

        pictures = [
            picture
            for images, lost in zip(self.pictures, self.drop.examples, strict=True)
            for picture in self._captioned(images, lost)
        ]
        columns, side = (2 * _PAIRS_IN_A_ROW, LARGE) if self.in_pairs else (_IN_A_ROW, SMALL)
        rows = [PictureRow("", pictures[start : start + columns]) for start in range(0, len(pictures), columns)]
        return sheet([Block(self.drop.heading(), self.drop.about_pictures(), rows)], side)

    @property
    def in_pairs(self) -> bool:
        """Return whether each example has two pictures, one per run."""
        return any(len(images) > 1 for images in self.pictures)

    def _captioned(self, images: Sequence[Image], lost: LostExample) -> Iterator[Picture]:
        from podline.drawing.picture_sheet import Picture  # noqa: PLC0415

        if len(images) == 1:
            yield Picture(images[0], f"{lost.name}\n✓ {lost.before}\n✗ {lost.after}", _WRONG)
            return
        before, after = images
        yield Picture(before, f"{lost.name}, before\n✓ {lost.before}")
        yield Picture(after, f"{lost.name}, now\n✗ {lost.after}", _WRONG)


class _Run(NamedTuple):
    """The documents of a run."""

    training: TrainSpec
    manifest: Manifest
    evaluation: AnyEvaluation


def rival_of(store: Store, run: str) -> str:
    """Return the champion that this run's model was compared with; empty if there was none."""
    decision = read_promotion(store, f"runs/{run}")
    return decision.against if decision else ""


def explain(
    store: Store, run: str, against: str, pair: Pair | None = None, spread: SeedSpread | None = None
) -> Explained:
    """Compare two runs on the same test examples.

    Args:
        store: the store.
        run: the run that may be worse.
        against: the other run.
        pair: the pair of both runs, the other one first, if already known.
        spread: the spread between seeds; by default from the ledger.

    Raises:
        StoreError: a file is missing, or the runs have no common examples and metric.
        ArtifactError: a file is damaged.
    """
    before, after = (_opened(store, name) for name in (against, run))
    if pair is None:
        pair = paired(store, *(judgement(each.training.folder, each.evaluation) for each in (before, after)))
    reader = open_split(store, after.training.dataset_folder, after.manifest, JUDGED)
    kind = kind_of(after.evaluation)
    spread = spread or spread_of(store, before.training, kind.measure, without=(run,))
    seeds = {name: spread.of(name, metric) for name, metric in before.evaluation.trained.metrics.items()}
    found = kind.lost_examples(pair, reader, before.evaluation, after.evaluation)
    drop = Drop(
        run=run,
        against=against,
        measure=kind.measure,
        difference=pair.differences(seeds)[kind.measure],
        lost=found.lost,
        gained=found.gained,
        parts=tuple(moved_parts(pair, tuple(kind.parts(after.evaluation)), spread)),
        examples=tuple(found.examples),
        gaps=tuple(_gaps(*(_lines(store, each.training) for each in (before, after)))),
        differences=_differences(store, before, after),
    )
    return Explained(drop, tuple(found.pictures))


def _opened(store: Store, run: str) -> _Run:
    training = training_of(store, run)
    return _Run(training, read_manifest(store, training.dataset_folder), read_evaluation(store, training.folder))


def _lines(store: Store, training: TrainSpec) -> list[MetricsLine]:
    return read_metrics(local_artifact(store, training.folder, "train", f"{training.folder}/{METRICS}"))


def _gaps(before: Sequence[MetricsLine], after: Sequence[MetricsLine]) -> Iterator[Gap]:
    """Yield the largest gap between two runs' curves, for each quantity at common steps."""
    was, now = _curves(before), _curves(after)
    found = []
    for what in was.keys() & now.keys():
        shared = sorted(was[what].keys() & now[what].keys())
        if shared:
            step = max(shared, key=lambda each: abs(now[what][each] - was[what][each]))
            found.append(Gap(what=what, step=step, before=was[what][step], after=now[what][step]))
    found = [gap for gap in found if gap.before != gap.after]
    yield from sorted(found, key=lambda gap: gap.what)


def _curves(lines: Sequence[MetricsLine]) -> dict[str, dict[int, float]]:
    """Return the curves by quantity: step → value."""
    curves: dict[str, dict[int, float]] = {}
    for line in lines:
        if isinstance(line, StepsLine | EvaluationLine):
            where = "training" if isinstance(line, StepsLine) else line.split
            values = {"loss": line.loss, "accuracy": line.accuracy}
            # Uses the last stage, whose output is decoded into people.
            met = max((name for name in line.measures if name.endswith("_heatmap/island_recall")), default="")
            if met:
                values["joints met"] = line.measures[met]
            for name, value in values.items():
                if not math.isnan(value):
                    curves.setdefault(f"{where} {name}", {})[line.step] = value
    return curves


def _differences(store: Store, before: _Run, after: _Run) -> tuple[NamedDifference, ...] | None:
    """Return the differences that produced the two models, without promotion rules, which do not affect models."""
    then, now = (read_origin(store, each.training.folder) for each in (before, after))
    if then is None or now is None:
        return None
    rows = differing([then, now], partial(change_between, store))
    return tuple(row for row in rows if not row.name.startswith(_RULES))
