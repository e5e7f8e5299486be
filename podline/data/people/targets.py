"""The people in a source's images: their part of the records, and the annotations that evaluations judge by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from podline.data.images.arrow_file import write_rows
from podline.data.images.image_table import ImageTable, Numbers
from podline.data.people.image import People
from podline.data.people.records import TABLE, PeopleByPlace
from podline.data.people.settings import PeopleSettings
from podline.data.people.truth import publish_truths
from podline.data.planning import ShardPlans
from podline.data.shards import SourceSplit
from podline.documents.manifest import FileInfo
from podline.documents.skeleton import Skeleton
from podline.store.contract import Store


@dataclass(frozen=True)
class PeopleTargets:
    """The people in the images of a source.

    Attributes:
        settings: the form of the records.
        skeleton: the joints of the people.
    """

    settings: PeopleSettings
    skeleton: Skeleton

    def of(self, images: ImageTable, numbers: Numbers) -> Iterator[People]:
        """Yield the people of some images."""
        return (People.of(text, width, height) for _, width, height, text in _rows(images, numbers))

    def publish_truths(
        self, store: Store, folder: str, dataset: str, images: ImageTable, splits: Sequence[SourceSplit]
    ) -> dict[str, FileInfo]:
        """See :func:`podline.data.people.truth.publish_truths`."""
        people = {split.name: self.of(images, split.numbers) for split in splits}
        return publish_truths(store, folder, dataset, people, self.skeleton)

    def shard_tables(
        self, images: ImageTable, splits: Sequence[SourceSplit], plans: ShardPlans, folder: Path
    ) -> tuple[PeopleByPlace, Iterator[Path]]:
        """See :meth:`podline.data.sources.source.Source.shard_tables`."""
        filler = PeopleByPlace(splits[0].pixels, self.settings.shape, self.settings, self.skeleton)
        numbers = {split.name: split.numbers for split in splits}

        def tables() -> Iterator[Path]:
            for plan in plans:
                path, mine = folder / filler.table(plan), numbers[plan.split][plan.first : plan.first + plan.records]
                write_rows(path, TABLE, _rows(images, mine), {})
                yield path

        return filler, tables()


def _rows(images: ImageTable, numbers: Numbers) -> Iterator[tuple[int, int, int, str]]:
    """Yield row, width, height and target of some images."""
    columns = (images.column(name)[numbers].tolist() for name in ("row", "width", "height"))
    return zip(*columns, (images.text("target", number) for number in numbers.tolist()), strict=True)
