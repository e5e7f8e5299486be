"""Spec and result of the stage that says what changed between two versions of a data set."""

from __future__ import annotations

from pydantic import Field

from podline.documents.manifest import dataset_folder
from podline.figures import count
from podline.stages.specs import Result, Spec, Where


class DataChangesSpec(Spec):
    """A comparison of two versions of images of one's own, to be made."""

    dataset: str = Field(description="its name")
    before: str = Field(description="the fingerprint of the version before")
    after: str = Field(description="that of the version after")
    out: str = Field(default="", description="the PNG file with pictures; empty draws none")

    @property
    def dataset_folder(self) -> str:
        """Return where the version after lies."""
        return dataset_folder(self.dataset, self.after)

    @property
    def uses(self) -> tuple[str, ...]:
        """Return both versions."""
        return (self.dataset_folder, dataset_folder(self.dataset, self.before))


class DataChanges(Result):
    """The changes between two versions."""

    dataset: str = Field(description="its name")
    before: str = Field(description="the fingerprint of the version before")
    after: str = Field(description="that of the version after")
    counts: dict[str, dict[str, tuple[int, int]]] = Field(
        description="split → class → records before and after; the class is empty where records have none"
    )
    added: int = Field(description="images that the version before lacks")
    removed: int = Field(description="images that the version after lacks")
    relabelled: int = Field(description="images of both with other targets")
    moved: int = Field(description="images of both in another split")
    new_classes: tuple[str, ...] = Field(description="classes that only the version after has images of")
    vanished_classes: tuple[str, ...] = Field(description="classes that only the version before has images of")
    relabels: tuple[str, ...] = Field(description="the first of the images that were relabelled")
    looks: tuple[str, ...] = Field(description="whether new images look like old ones, a sentence each")
    shifted: bool = Field(description="whether a test says that they do not")
    png: str = Field(default="", description="the file with pictures; empty if none was drawn")

    def sentences(self) -> list[str]:
        """Return what changed, without counts by class."""
        what = {"added": self.added, "removed": self.removed, "relabelled": self.relabelled, "moved": self.moved}
        told = [", ".join(f"{count(number)} {name}" for name, number in what.items() if number) or "the same records"]
        told += [f"new class {name}" for name in self.new_classes]
        told += [f"class {name} has no image any more" for name in self.vanished_classes]
        return [*told, *(f"relabelled: {each}" for each in self.relabels), *self.looks]

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return counts of splits and classes that changed, and what changed."""
        rows = [
            f"{split:10} {name:14} {count(old):>9} → {count(new):<9} {new - old:+,}"
            for split, classes in self.counts.items()
            for name, (old, new) in classes.items()
            if old != new
        ]
        return [*self.sentences(), *rows, *([self.png] if self.png else [])]
