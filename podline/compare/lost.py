"""Explains why a run is worse than another: lost examples, worse classes, different training curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from podline.base.arrays import Image
from podline.base.figures import count
from podline.base.frozen import Frozen
from podline.compare.comparison import Comparison, Pairing
from podline.contract.answers import LostExample, LostExamples
from podline.contract.kind import kind_of
from podline.data.reader import open_split
from podline.documents.manifest import read_manifest
from podline.documents.metrics_log import EvaluationLine, MetricsLine, StepsLine, metrics_of
from podline.documents.origins import ORIGIN
from podline.recipes.kind_facts import KindFacts
from podline.recipes.kind_table import facts_by_measure
from podline.store.contract import Store

if TYPE_CHECKING:
    from podline.base.drawing.picture_sheet import Sheet, SheetPicture

_IN_A_ROW, _PAIRS_IN_A_ROW = 8, 2
_WRONG = "#c0392b"


class Gap(Frozen):
    """The largest gap between two runs' training curves of a quantity: the step, and both values there."""

    what: str
    step: int
    before: float
    after: float


class Why(Frozen):
    """The examples that a run lost in comparison with another one, and the causes.

    Attributes:
        comparison: the comparison of the two runs.
        lost: number of examples, or people, that only the other run got right.
        gained: number of examples, or people, that only this run got right.
        examples: some of the lost examples: those that the other run answered most confidently, or the images with the
            most lost joints.
        gaps: gaps between the training curves; none for equal curves and for curves without common steps.
    """

    comparison: Comparison
    lost: int
    gained: int
    examples: tuple[LostExample, ...]
    gaps: tuple[Gap, ...]

    @property
    def _facts(self) -> KindFacts:
        return facts_by_measure(self.comparison.measure)

    def about_pictures(self) -> str:
        """Return the legend of the pictures of examples."""
        says, found = self._facts.says, self.comparison
        return f"✓ {says.format(found.against)}, ✗ {says.format(found.run)}{self._facts.lost_hint}"

    def heading(self) -> str:
        """Return the heading of the pictures."""
        return self._facts.lost.format(shown=count(len(self.examples)), lost=count(self.lost))

    def causes(self) -> list[str]:
        """Return lines: lost examples, changed classes or joints, different inputs, and the largest gaps of curves."""
        found, what = self.comparison, self._facts.examples
        lines = [f"{count(self.lost)} {what} lost, {count(self.gained)} gained"] if self.lost or self.gained else []
        lines += [f"{part.line()}: {part.chance}" for part in found.moved]
        if found.differs is None:
            lines.append(f"settings, data, code, environment: not compared, since one of the runs has no {ORIGIN}")
        else:
            rows = [f"{row.area}: {row.name}: {' → '.join(row.values)}" for row in found.differs]
            lines += rows or ["settings, data, code and environment are the same"]
        lines += [
            f"curves of the {gap.what} are furthest apart at step {gap.step}: {gap.before:.4g} → {gap.after:.4g}"
            for gap in self.gaps
        ]
        return lines

    def lines(self) -> list[str]:
        """Return the whole comparison as lines of text."""
        lost = [f"record {each.record}, {each.name}: {each.before} → {each.after}" for each in self.examples]
        return [self.comparison.sentence(), *self.causes(), *lost]


class Explained(NamedTuple):
    """The examples that a run lost, and the pictures of ``why.examples``.

    Attributes:
        why: the explanation without pictures.
        pictures: for each example, uint8 (height, width, channels): its image; or, for pose networks, two pictures with
            the people of the other run and of this run.
        looked_at: each image with colours on the regions that support this run's answer; empty if not available.
    """

    why: Why
    pictures: tuple[tuple[Image, ...], ...]
    looked_at: tuple[Image, ...] = ()

    def picture_sheet(self) -> Sheet:
        """Draw the lost examples as one figure."""
        # Imported here, since flows should not wait for matplotlib.
        from podline.base.drawing.picture_sheet import LARGE, SMALL, PictureRow, SheetBlock, sheet  # noqa: PLC0415

        pictures = [
            picture
            for images, lost in zip(self.pictures, self.why.examples, strict=True)
            for picture in self._captioned(images, lost)
        ]
        columns, side = (2 * _PAIRS_IN_A_ROW, LARGE) if self.in_pairs else (_IN_A_ROW, SMALL)
        rows = [PictureRow("", pictures[start : start + columns]) for start in range(0, len(pictures), columns)]
        return sheet([SheetBlock(self.why.heading(), self.why.about_pictures(), rows)], side)

    @property
    def in_pairs(self) -> bool:
        """Return whether each example has two pictures, one per run."""
        return any(len(images) > 1 for images in self.pictures)

    def _captioned(self, images: Sequence[Image], lost: LostExample) -> Iterator[SheetPicture]:
        from podline.base.drawing.picture_sheet import SheetPicture  # noqa: PLC0415

        if len(images) == 1:
            yield SheetPicture(images[0], f"{lost.name}\n✓ {lost.before}\n✗ {lost.after}", _WRONG)
            return
        before, after = images
        yield SheetPicture(before, f"{lost.name}, before\n✓ {lost.before}")
        yield SheetPicture(after, f"{lost.name}, now\n✗ {lost.after}", _WRONG)


def explain(store: Store, pairing: Pairing) -> Explained:
    """Find the examples that a run lost in comparison with another run, and possible causes.

    Raises:
        StoreError: a file is missing.
        ArtifactError: a file is damaged.
    """
    before, after, compared = pairing.before, pairing.after, pairing.compared
    found = LostExamples(0, 0, [], [])
    if compared is not None:
        manifest = read_manifest(store, folder := after.training.dataset_folder)
        reader, kind = open_split(store, folder, manifest, after.evaluation.split), kind_of(after.evaluation)
        found = kind.lost_examples(compared, reader, manifest, before.evaluation, after.evaluation)
    why = Why(
        comparison=pairing.comparison,
        lost=found.lost,
        gained=found.gained,
        examples=tuple(found.examples),
        gaps=tuple(_gaps(*(metrics_of(store, each.training.folder) for each in (before, after)))),
    )
    return Explained(why, tuple(found.pictures))


def _gaps(before: Iterable[MetricsLine], after: Iterable[MetricsLine]) -> Iterator[Gap]:
    """Yield the largest gap between two runs' curves at common steps, for each quantity that differs."""
    was, now = _curves(before), _curves(after)
    found = []
    for what in was.keys() & now.keys():
        shared = sorted(was[what].keys() & now[what].keys())
        if shared:
            step = max(shared, key=lambda each: abs(now[what][each] - was[what][each]))
            found.append(Gap(what=what, step=step, before=was[what][step], after=now[what][step]))
    found = [gap for gap in found if gap.before != gap.after]
    yield from sorted(found, key=lambda gap: gap.what)


def _curves(lines: Iterable[MetricsLine]) -> dict[str, dict[int, float]]:
    """Return the curves by quantity: step → value."""
    curves: dict[str, dict[int, float]] = {}
    for line in lines:
        if isinstance(line, StepsLine | EvaluationLine):
            where = "training" if isinstance(line, StepsLine) else line.split
            values = {"loss": line.loss, "accuracy": line.accuracy}
            # Of a pose network's stages, only the last is compared, whose output is decoded into people.
            met = max((name for name in line.measures if name.endswith("_heatmap/island_recall")), default="")
            if met:
                values["joints met"] = line.measures[met]
            for name, value in values.items():
                if not math.isnan(value):
                    curves.setdefault(f"{where} {name}", {})[line.step] = value
    return curves
