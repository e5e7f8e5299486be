"""Spec and result of the stage that compares two versions of a data set."""

from __future__ import annotations

from pydantic import Field

from podline.base.figures import count
from podline.documents.manifest import dataset_folder
from podline.stages.base import Result, Spec, Where


class DataChangesSpec(Spec["DataChanges"]):
    """Compares two versions of a data set of the user's own images."""

    dataset: str = Field(description="the data set's name")
    before: str = Field(description="the fingerprint of the earlier version")
    after: str = Field(description="the fingerprint of the later version")
    out: str = Field(default="", description="the PNG file for example images; empty writes none")

    @property
    def dataset_folder(self) -> str:
        """Return the folder of the later version."""
        return dataset_folder(self.dataset, self.after)

    @property
    def uses(self) -> tuple[str, ...]:
        """Return the folders of both versions."""
        return (self.dataset_folder, dataset_folder(self.dataset, self.before))


class DataChanges(Result):
    """The changes between two versions of a data set."""

    dataset: str = Field(description="the data set's name")
    before: str = Field(description="the fingerprint of the earlier version")
    after: str = Field(description="the fingerprint of the later version")
    counts: dict[str, dict[str, tuple[int, int]]] = Field(
        description="split → class → numbers of records before and after; the class is empty for records without one"
    )
    added: int = Field(description="number of images that only the later version has")
    removed: int = Field(description="number of images that only the earlier version has")
    relabelled: int = Field(description="number of images of both versions with different targets")
    moved: int = Field(description="number of images of both versions in different splits")
    new_classes: tuple[str, ...] = Field(description="classes that only the later version has images of")
    vanished_classes: tuple[str, ...] = Field(description="classes that only the earlier version has images of")
    relabels: tuple[str, ...] = Field(description="the first relabelled images, one line each")
    looks: tuple[str, ...] = Field(description="comparisons of the pixels of new and old images, one sentence each")
    shifted: bool = Field(description="whether a test shows that the pixels of new and old images differ")
    png: str = Field(default="", description="the PNG file with example images; empty if none was written")

    def sentences(self) -> list[str]:
        """Return the changes as sentences, without the counts per class."""
        counts = {"added": self.added, "removed": self.removed, "relabelled": self.relabelled, "moved": self.moved}
        amounts = ", ".join(f"{count(number)} {name}" for name, number in counts.items() if number)
        sentences = [amounts or "the same records"]
        sentences += [f"new class {name}" for name in self.new_classes]
        sentences += [f"class {name} has no image any more" for name in self.vanished_classes]
        return [*sentences, *(f"relabelled: {each}" for each in self.relabels), *self.looks]

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return the changes as sentences, the changed counts per split and class, and the PNG file."""
        rows = [
            f"{split:10} {name:14} {count(old):>9} → {count(new):<9} {new - old:+,}"
            for split, classes in self.counts.items()
            for name, (old, new) in classes.items()
            if old != new
        ]
        return [*self.sentences(), *rows, *([self.png] if self.png else [])]
