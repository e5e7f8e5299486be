"""Spec and result of the stage that compares two versions of a data set."""

from __future__ import annotations

from pydantic import Field

from podline.base.figures import count
from podline.documents.manifest import dataset_folder
from podline.stages.specs import Result, Spec, Where


class DataChangesSpec(Spec["DataChanges"]):
    """The spec of a comparison of two versions of the user's own images."""

    dataset: str = Field(description="its name")
    before: str = Field(description="the fingerprint of the earlier version")
    after: str = Field(description="the fingerprint of the later version")
    out: str = Field(default="", description="the PNG file with pictures; empty draws none")

    @property
    def dataset_folder(self) -> str:
        """Return the folder of the later version."""
        return dataset_folder(self.dataset, self.after)

    @property
    def uses(self) -> tuple[str, ...]:
        """Return the folders of both versions."""
        return (self.dataset_folder, dataset_folder(self.dataset, self.before))


class DataChanges(Result):
    """The changes between two versions."""

    dataset: str = Field(description="its name")
    before: str = Field(description="the fingerprint of the earlier version")
    after: str = Field(description="the fingerprint of the later version")
    counts: dict[str, dict[str, tuple[int, int]]] = Field(
        description="split → class → records before and after; the class is empty for records without one"
    )
    added: int = Field(description="images that only the later version has")
    removed: int = Field(description="images that only the earlier version has")
    relabelled: int = Field(description="images of both versions with different targets")
    moved: int = Field(description="images of both versions in different splits")
    new_classes: tuple[str, ...] = Field(description="classes that only the later version has images of")
    vanished_classes: tuple[str, ...] = Field(description="classes that only the earlier version has images of")
    relabels: tuple[str, ...] = Field(description="the first relabelled images")
    looks: tuple[str, ...] = Field(description="comparisons of new images with old ones, a sentence each")
    shifted: bool = Field(description="whether a test shows that new images differ from old ones")
    png: str = Field(default="", description="the file with pictures; empty if none was drawn")

    def sentences(self) -> list[str]:
        """Return the changes without counts by class."""
        what = {"added": self.added, "removed": self.removed, "relabelled": self.relabelled, "moved": self.moved}
        told = [", ".join(f"{count(number)} {name}" for name, number in what.items() if number) or "the same records"]
        told += [f"new class {name}" for name in self.new_classes]
        told += [f"class {name} has no image any more" for name in self.vanished_classes]
        return [*told, *(f"relabelled: {each}" for each in self.relabels), *self.looks]

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return the counts of splits and classes that changed, and the changes."""
        rows = [
            f"{split:10} {name:14} {count(old):>9} → {count(new):<9} {new - old:+,}"
            for split, classes in self.counts.items()
            for name, (old, new) in classes.items()
            if old != new
        ]
        return [*self.sentences(), *rows, *([self.png] if self.png else [])]
