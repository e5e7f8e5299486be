"""Why a run is worse than another: what it gets wrong that was right, which classes fell, where its curves part.

Both are judged on the same examples; a run on other examples has nothing to be held against, one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.catalogue import training_of
from podline.data.keypoints import COCO_JOINTS
from podline.data.manifest import Manifest, read_manifest
from podline.data.reader import SplitReader, open_split
from podline.data_changes import change_between
from podline.differences import Row, differing
from podline.evaluation import noise
from podline.evaluation.document import Evaluation, read_evaluation
from podline.evaluation.noise import Difference
from podline.evaluation.oks import CloseJoints, close_joints
from podline.evaluation.paired import Changed, changed, holm, mcnemar
from podline.evaluation.pose_document import PoseEvaluation
from podline.frozen import Frozen
from podline.origins import ORIGIN, read_origin
from podline.promotion.document import read_promotion
from podline.reporting.figures import count, percent
from podline.reporting.pairs import FoundPair, GuessedPair, judgement, paired
from podline.stages import JUDGED, TrainSpec
from podline.storage import Store
from podline.training.metrics_log import METRICS, EvaluationLine, MetricsLine, StepsLine, read_metrics

if TYPE_CHECKING:
    from podline.reporting.picture_sheet import Sheet

MOST_EXAMPLES = 24
_MOST_GAPS, _IN_A_ROW = 3, 8
_WRONG = "#c0392b"
_RULES = "promotion."

Image = npt.NDArray[np.uint8]


class LostExample(Frozen):
    """An example that the other run gets right, or an image whose people it finds, and this one does not.

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
        examples: some of those lost: those that the other was surest of.
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
    differences: tuple[Row, ...] | None

    @property
    def worse(self) -> bool:
        """Whether the run is worse beyond noise: as a whole, or in a class or joint."""
        fell = self.difference.value < 0 and not self.difference.noise
        return fell or any(part.after < part.before and not part.noise for part in self.parts)

    def headline(self) -> str:
        """It in a sentence."""
        points = 100 * abs(self.difference.value)
        name = "AP" if self.measure == "ap" else "accuracy"
        way = "lower" if self.difference.value < 0 else "higher"
        chance = "which could be noise" if self.difference.noise else "which is more than noise"
        what = "people found" if self.measure == "ap" else "examples"
        return (
            f"{self.run} has {points:.1f} points {way} {name} than {self.against}, {chance} "
            f"(p = {self.difference.p_value:.2g}): {count(self.lost)} {what} lost, {count(self.gained)} gained."
        )

    def lines(self) -> list[str]:
        """All of it in words."""
        moved = [part for part in self.parts if not part.noise]
        told = [self.headline()]
        told += [f"{part.name}: {percent(part.before)} → {percent(part.after)}" for part in moved]
        told += self._produced()
        told += [f"{gap.what} at step {gap.step}: {gap.before:.4g} → {gap.after:.4g}" for gap in self.gaps]
        told += [f"record {lost.record}, {lost.name}: {lost.before} → {lost.after}" for lost in self.examples]
        return told

    def _produced(self) -> list[str]:
        """What differs, in words."""
        if self.differences is None:
            return [f"settings, data, code, environment: not compared, as one of the runs has no {ORIGIN}"]
        told = [f"{row.area}: {row.name}: {' → '.join(row.values)}" for row in self.differences]
        return told or ["settings, data, code and environment are the same"]


class Explained(NamedTuple):
    """A drop, and the images of ``drop.examples``, uint8 (height, width, channels) each."""

    drop: Drop
    images: tuple[Image, ...]

    def picture_sheet(self) -> Sheet:
        """The examples that were lost, as one figure."""
        # matplotlib: nothing that a flow should wait for.
        from podline.reporting.picture_sheet import SMALL, Block, Picture, Row, sheet  # noqa: PLC0415

        pictures = [
            Picture(image, f"{lost.name}\n✓ {lost.before}\n✗ {lost.after}", _WRONG)
            for image, lost in zip(self.images, self.drop.examples, strict=True)
        ]
        rows = [Row("", pictures[start : start + _IN_A_ROW]) for start in range(0, len(pictures), _IN_A_ROW)]
        about = f"✓ what {self.drop.against} says, ✗ what {self.drop.run} says"
        return sheet([Block(f"Right before, wrong now: {len(pictures)} of {self.drop.lost}", about, rows)], SMALL)


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
    found = _classes(pair, after.manifest) if isinstance(pair, GuessedPair) else _poses(pair, reader)
    records = np.array([lost.record for lost in found.examples], np.int64)
    images: Sequence[Image] = list(reader.gather(records, ["image"])["image"]) if len(records) else ()
    measure = "top1" if isinstance(pair, GuessedPair) else "ap"
    drop = Drop(
        run=run,
        against=against,
        measure=measure,
        difference=pair.differences[measure],
        lost=found.lost,
        gained=found.gained,
        parts=tuple(sorted(found.parts, key=lambda part: part.after - part.before)),
        examples=tuple(found.examples),
        gaps=tuple(_gaps(*(_lines(store, each.training) for each in (before, after)))),
        differences=_differences(store, before, after),
    )
    return Explained(drop, tuple(images))


class _Judgement(NamedTuple):
    lost: int
    gained: int
    parts: list[MovedPart]
    examples: list[LostExample]


def _opened(store: Store, run: str) -> _Run:
    training = training_of(store, run)
    return _Run(training, read_manifest(store, training.dataset_folder), read_evaluation(store, training.folder))


def _classes(pair: GuessedPair, manifest: Manifest) -> _Judgement:
    then, now, names = pair.before, pair.after, manifest.class_names
    counts = {name: moved for name, moved in pair.counts(names).items() if moved.examples}
    shares = {name: float(then.right[now.labels == names.index(name)].mean()) for name in counts}
    lost = np.flatnonzero(then.right & ~now.right)
    surest = lost[np.argsort(-then.confidences[lost], kind="stable")][:MOST_EXAMPLES]
    return _Judgement(
        len(lost),
        int((now.right & ~then.right).sum()),
        _moved(counts, shares),
        [
            LostExample(
                record=record,
                name=names[now.labels[record]],
                before=f"{names[then.predictions[record]]}, {100 * then.confidences[record]:.0f} %",
                after=f"{names[now.predictions[record]]}, {100 * now.confidences[record]:.0f} %",
            )
            for record in surest.tolist()
        ],
    )


def _poses(pair: FoundPair, reader: SplitReader) -> _Judgement:
    then, now = close_joints(pair.before), close_joints(pair.after)
    counts, shares = {}, {}
    for place, name in enumerate(COCO_JOINTS):
        people = [person for person in now if now[person].labelled[place]]
        if people:
            was, is_now = (np.array([each[person].close[place] for person in people]) for each in (then, now))
            counts[name], shares[name] = changed(was, is_now), float(was.mean())
    found = [{person for person, joints in each.items() if joints.close.any()} for each in (then, now)]
    lost, gained = found[0] - found[1], found[1] - found[0]
    ids = reader.gather(np.arange(len(reader)), ["image_id"])["image_id"][:, 0].tolist()
    return _Judgement(
        len(lost),
        len(gained),
        _moved(counts, shares),
        list(_images_of(lost, now, {image: place for place, image in enumerate(ids)})),
    )


def _images_of(lost: set[int], people: Mapping[int, CloseJoints], places: Mapping[int, int]) -> Iterator[LostExample]:
    """The images in which the most people were lost, as examples."""
    by_image: dict[int, int] = {}
    for person in lost:
        by_image[people[person].image_id] = by_image.get(people[person].image_id, 0) + 1
    for image in sorted(by_image, key=lambda each: (-by_image[each], each))[:MOST_EXAMPLES]:
        there = sum(joints.image_id == image for joints in people.values())
        name, missed = f"image {image}", by_image[image]
        yield LostExample(record=places[image], name=name, before=f"{missed} of {there} found", after="not found")


def _moved(counts: Mapping[str, Changed], shares: Mapping[str, float]) -> list[MovedPart]:
    chances = holm({name: mcnemar(counts[name]) for name in shares})
    return [
        MovedPart(name=name, before=share, after=share - counts[name].drop, chance=chances[name])
        for name, share in shares.items()
    ]


def _lines(store: Store, training: TrainSpec) -> list[MetricsLine]:
    return read_metrics(store.local(f"{training.folder}/{METRICS}"))


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
    yield from sorted(found, key=lambda gap: gap.what)[: 2 * _MOST_GAPS]


def _curves(lines: Sequence[MetricsLine]) -> dict[str, dict[int, float]]:
    """By what was measured: step → value."""
    curves: dict[str, dict[int, float]] = {}
    for line in lines:
        if isinstance(line, StepsLine | EvaluationLine):
            where = "training" if isinstance(line, StepsLine) else line.split
            for name, value in (("loss", line.loss), ("accuracy", line.accuracy)):
                if not math.isnan(value):
                    curves.setdefault(f"{where} {name}", {})[line.step] = value
    return curves


def _differences(store: Store, before: _Run, after: _Run) -> tuple[Row, ...] | None:
    """What differs in what produced the two; rules of promotion make no model worse."""
    then, now = (read_origin(store, each.training.folder) for each in (before, after))
    if then is None or now is None:
        return None
    rows = differing([then, now], partial(change_between, store))
    return tuple(row for row in rows if not row.name.startswith(_RULES))
