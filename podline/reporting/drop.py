"""Why a run is worse than another: examples lost, classes that fell, where the curves part.

Both are judged on the same examples; a run on other examples has nothing to be held against, one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.reader import SplitReader, open_split
from podline.datasets.changes import change_between
from podline.documents.completion import local_artifact
from podline.documents.evaluation import Evaluation, read_evaluation
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.metrics_log import METRICS, EvaluationLine, MetricsLine, StepsLine, read_metrics
from podline.documents.origins import ORIGIN, read_origin
from podline.documents.pose_evaluation import PoseEvaluation
from podline.documents.promotion import read_promotion
from podline.evaluation import noise
from podline.evaluation.moved_parts import ShareChange, chances
from podline.evaluation.noise import Difference
from podline.figures import count, percent
from podline.frozen import Frozen
from podline.inventory.catalogue import training_of
from podline.ledger.differences import NamedDifference, differing
from podline.plurals import plural
from podline.reporting.lost_people import Found, drawn, lost_people
from podline.reporting.pairs import FoundPair, GuessedPair, judgement, paired
from podline.stages.specs import JUDGED, TrainSpec
from podline.store.contract import Store

if TYPE_CHECKING:
    from podline.drawing.picture_sheet import Sheet

MOST_EXAMPLES, MOST_IMAGES = 24, 8
"""So many examples of a classifier are named and shown, and so many images of people."""
_IN_A_ROW, _PAIRS_IN_A_ROW = 8, 2
_WRONG = "#c0392b"
_RULES = "promotion."

Image = npt.NDArray[np.uint8]


class LostExample(Frozen):
    """An example that the other run gets right and this one does not, or an image in which it finds more joints.

    Attributes:
        record: its place in the split, as :meth:`podline.data.reader.SplitReader.gather` takes it.
        name: its class, or COCO's id of the image.
        before: what the other run says of it.
        after: what this one says.
    """

    record: int
    name: str
    before: str
    after: str


class MovedPart(Frozen):
    """A class or a joint: its share of right answers in both runs, and how likely such a movement is by chance.

    ``chance`` is raised for how many parts there are: of all together, one is below a rate by chance no more often.
    """

    name: str
    before: float
    after: float
    chance: float

    @property
    def noise(self) -> bool:
        """Whether chance alone could well have moved it."""
        return self.chance >= noise.LEVEL


class Gap(Frozen):
    """Where two training curves are furthest apart: what was measured, and both values, at the same step."""

    what: str
    step: int
    before: float
    after: float


class Drop(Frozen):
    """A run held against another.

    Attributes:
        run: the run.
        against: the other one.
        measure: the metric that counts.
        difference: of it, this run's less the other's.
        lost: examples, or people, that only the other got right.
        gained: likewise, only this one.
        parts: every class or joint, the one that fell most first.
        examples: some of those lost: those that the other was surest of; the images that lost the most joints.
        gaps: of the training curves.
        differences: in what produced the two: settings, data, code, environment; None where one run does not tell.
    """

    run: str
    against: str
    measure: Literal["top1", "ap"]
    difference: Difference
    lost: int
    gained: int
    parts: tuple[MovedPart, ...]
    examples: tuple[LostExample, ...]
    gaps: tuple[Gap, ...]
    differences: tuple[NamedDifference, ...] | None

    @property
    def worse(self) -> bool:
        """Whether the run is worse beyond noise: as a whole, or in a class or joint."""
        fell = self.difference.value < 0 and not self.difference.noise
        return fell or any(part.after < part.before and not part.noise for part in self.parts)

    def headline(self) -> str:
        """The drop in a sentence."""
        name = "AP" if self.measure == "ap" else "accuracy"
        way = "lower" if self.difference.value < 0 else "higher"
        points = f"{100 * abs(self.difference.value):.1f} points {way} {name} than"
        held = points if self.difference.value else f"the same {name} as"
        chance = "which could be noise" if self.difference.noise else "which is more than noise"
        what = "people" if self.measure == "ap" else "examples"
        return (
            f"{self.run} has {held} {self.against}, {chance} "
            f"(p = {self.difference.p_value:.2g}): {count(self.lost)} {what} lost, {count(self.gained)} gained."
        )

    def heading(self) -> str:
        """What is above the pictures of examples, in words."""
        shown, lost = count(len(self.examples)), count(self.lost)
        if self.measure == "ap":
            return f"Found before, not now: the {shown} images that lost the most joints"
        return f"Right before, wrong now: {shown} of {lost}"

    def lines(self) -> list[str]:
        """All of it in words."""
        moved = [part for part in self.parts if not part.noise]
        told = [self.headline()]
        told += [f"{part.name}: {percent(part.before)} → {percent(part.after)}" for part in moved]
        told += self._produced()
        told += [
            f"curves of the {gap.what} are furthest apart at step {gap.step}: {gap.before:.4g} → {gap.after:.4g}"
            for gap in self.gaps
        ]
        told += [f"record {lost.record}, {lost.name}: {lost.before} → {lost.after}" for lost in self.examples]
        return told

    def _produced(self) -> list[str]:
        """What differs, in words."""
        if self.differences is None:
            return [f"settings, data, code, environment: not compared, as one of the runs has no {ORIGIN}"]
        told = [f"{row.area}: {row.name}: {' → '.join(row.values)}" for row in self.differences]
        return told or ["settings, data, code and environment are the same"]


class Explained(NamedTuple):
    """A drop, and the pictures of ``drop.examples``.

    Attributes:
        drop: all of it but the pictures.
        pictures: of each example, uint8 (height, width, channels): the image as it is, or, of a pose network, one with
            the people that the other run finds and one with those that this run finds.
    """

    drop: Drop
    pictures: tuple[tuple[Image, ...], ...]

    def picture_sheet(self) -> Sheet:
        """The examples that were lost, as one figure."""
        # matplotlib: nothing that a flow should wait for.
        from podline.drawing.picture_sheet import LARGE, SMALL, Block, Picture, PictureRow, sheet  # noqa: PLC0415

        of_people = self.drop.measure == "ap"
        pictures = []
        for images, lost in zip(self.pictures, self.drop.examples, strict=True):
            if of_people:
                before, after = images
                pictures.append(Picture(before, f"{lost.name}, before\n✓ {lost.before}"))
                pictures.append(Picture(after, f"{lost.name}, now\n✗ {lost.after}", _WRONG))
            else:
                pictures.append(Picture(images[0], f"{lost.name}\n✓ {lost.before}\n✗ {lost.after}", _WRONG))
        says = "whom {} finds" if of_people else "what {} says"
        about = f"✓ {says.format(self.drop.against)}, ✗ {says.format(self.drop.run)}"
        about += "; people that only the first finds are framed, joints are ringed" if of_people else ""
        columns, side = (2 * _PAIRS_IN_A_ROW, LARGE) if of_people else (_IN_A_ROW, SMALL)
        rows = [PictureRow("", pictures[start : start + columns]) for start in range(0, len(pictures), columns)]
        return sheet([Block(self.drop.heading(), about, rows)], side)


class _Run(NamedTuple):
    """A run's files."""

    training: TrainSpec
    manifest: Manifest
    evaluation: Evaluation | PoseEvaluation


def rival_of(store: Store, run: str) -> str:
    """The run that a run is to be held against: the champion that its model was judged against; empty if none."""
    decision = read_promotion(store, f"runs/{run}")
    return decision.against if decision else ""


def explain(store: Store, run: str, against: str, pair: GuessedPair | FoundPair | None = None) -> Explained:
    """Holds a run against another, example by example.

    Args:
        store: the store.
        run: the run that may be worse.
        against: the other one.
        pair: the two on the same examples, the other one first, where that is known already.

    Raises:
        StoreError: a file is gone, or the two were not judged on the same examples by the same metric.
        ArtifactError: a file is damaged.
    """
    before, after = (_opened(store, name) for name in (against, run))
    if pair is None:
        pair = paired(store, *(judgement(each.training.folder, each.evaluation) for each in (before, after)))
    reader = open_split(store, after.training.dataset_folder, after.manifest, JUDGED)
    found = (
        _classes(pair, after.manifest, reader) if isinstance(pair, GuessedPair) else _poses(pair, reader, before, after)
    )
    measure = "top1" if isinstance(pair, GuessedPair) else "ap"
    drop = Drop(
        run=run,
        against=against,
        measure=measure,
        difference=pair.differences[measure],
        lost=found.lost,
        gained=found.gained,
        parts=tuple(sorted(_moved(found.parts), key=lambda part: part.after - part.before)),
        examples=tuple(found.examples),
        gaps=tuple(_gaps(*(_lines(store, each.training) for each in (before, after)))),
        differences=_differences(store, before, after),
    )
    return Explained(drop, tuple(found.pictures))


class _Judgement(NamedTuple):
    lost: int
    gained: int
    parts: Mapping[str, ShareChange]
    examples: list[LostExample]
    pictures: list[tuple[Image, ...]]


def _opened(store: Store, run: str) -> _Run:
    training = training_of(store, run)
    return _Run(training, read_manifest(store, training.dataset_folder), read_evaluation(store, training.folder))


def _classes(pair: GuessedPair, manifest: Manifest, reader: SplitReader) -> _Judgement:
    then, now, names = pair.before, pair.after, manifest.class_names
    lost = np.flatnonzero(then.right & ~now.right)
    surest = lost[np.argsort(-then.confidences[lost], kind="stable")][:MOST_EXAMPLES]
    return _Judgement(
        len(lost),
        int((now.right & ~then.right).sum()),
        pair.moved(names),
        [
            LostExample(
                record=record,
                name=names[now.labels[record]],
                before=f"{names[then.predictions[record]]}, {100 * then.confidences[record]:.0f} %",
                after=f"{names[now.predictions[record]]}, {100 * now.confidences[record]:.0f} %",
            )
            for record in surest.tolist()
        ],
        [(image,) for image in reader.gather(surest, ["image"])["image"]] if len(surest) else [],
    )


def _poses(pair: FoundPair, reader: SplitReader, before: _Run, after: _Run) -> _Judgement:
    people = lost_people(pair, reader)
    shown = people.images[:MOST_IMAGES]
    evaluations = [each.evaluation for each in (before, after)]
    thresholds = [each.score_threshold if isinstance(each, PoseEvaluation) else 0.0 for each in evaluations]
    return _Judgement(
        people.lost,
        people.gained,
        pair.moved(),
        [
            LostExample(
                record=image.record,
                name=f"image {image.image_id}",
                before=_of_all(image.before, image.there),
                after=_of_all(image.after, image.there),
            )
            for image in shown
        ],
        [drawn(image, pair, reader, thresholds) for image in shown],
    )


def _of_all(found: Found, there: Found) -> str:
    people, joints = plural(there.people, "person", "people"), plural(there.joints, "joint")
    return f"{found.people} of {people}, {found.joints} of {joints}"


def _moved(parts: Mapping[str, ShareChange]) -> Iterator[MovedPart]:
    by_chance = chances(parts)
    for name, part in parts.items():
        yield MovedPart(name=name, before=part.before, after=part.after, chance=by_chance[name])


def _lines(store: Store, training: TrainSpec) -> list[MetricsLine]:
    return read_metrics(local_artifact(store, training.folder, "train", f"{training.folder}/{METRICS}"))


def _gaps(before: Sequence[MetricsLine], after: Sequence[MetricsLine]) -> Iterator[Gap]:
    """For each thing that both curves have at the same steps, where they are furthest apart."""
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
    """By what was measured: step → value."""
    curves: dict[str, dict[int, float]] = {}
    for line in lines:
        if isinstance(line, StepsLine | EvaluationLine):
            where = "training" if isinstance(line, StepsLine) else line.split
            values = {"loss": line.loss, "accuracy": line.accuracy}
            # Of the stages the last one is what people are made of.
            met = max((name for name in line.measures if name.endswith("_heatmap/island_recall")), default="")
            if met:
                values["joints met"] = line.measures[met]
            for name, value in values.items():
                if not math.isnan(value):
                    curves.setdefault(f"{where} {name}", {})[line.step] = value
    return curves


def _differences(store: Store, before: _Run, after: _Run) -> tuple[NamedDifference, ...] | None:
    """What differs in what produced the two; rules of promotion make no model worse."""
    then, now = (read_origin(store, each.training.folder) for each in (before, after))
    if then is None or now is None:
        return None
    rows = differing([then, now], partial(change_between, store))
    return tuple(row for row in rows if not row.name.startswith(_RULES))
