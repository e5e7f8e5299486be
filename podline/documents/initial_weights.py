"""``initial_weights.json`` of a run: which layers started with weights from a file. Needs no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podline.base.frozen import Frozen, omitted
from podline.base.plurals import first_few, plural
from podline.documents.completion import read_artifact_model
from podline.store.contract import Store

INITIAL_WEIGHTS = "initial_weights.json"
# Number of layer names in a message, enough to recognise the layers.
_FEW = 3


class OtherShape(Frozen):
    """A layer whose weights in the file have other shapes than in the model, so that they were not loaded."""

    layer: str
    in_file: tuple[tuple[int, ...], ...]
    in_model: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        return f"{self.layer} {_shapes(self.in_file)} vs {_shapes(self.in_model)} in the model"


class InitialWeights(Frozen):
    """The result of loading initial weights from a file.

    Attributes:
        file: path of the file when the run began.
        checksum: checksum of the file.
        published: publication in which published weights appeared, or None.
        licence: licence of published weights, or None.
        parameters: number of loaded values.
        taken: layers with loaded weights.
        other_shape: layers with other shapes in the file; initialized at random.
        missing: layers of the model that the file lacks; initialized at random.
        unused: layers of the file that the model lacks.
    """

    file: str
    checksum: str
    published: str | None = omitted(None)
    licence: str | None = omitted(None)
    parameters: int
    taken: tuple[str, ...]
    other_shape: tuple[OtherShape, ...]
    missing: tuple[str, ...]
    unused: tuple[str, ...]

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield rows for a table: (description, value), such as ("taken", "3 layers (…), 1,200 parameters")."""
        yield "file", f"{self.file} (checksum {self.checksum[:12]}…)"
        if self.published and self.licence:
            yield from (("published in", self.published), ("licence", self.licence))
        yield "taken", f"{_named(self.taken)}, {plural(self.parameters, 'parameter')}"
        yield "other shape, not loaded", _named([str(each) for each in self.other_shape])
        yield "not in the file", _named(self.missing)
        yield "only in the file", _named(self.unused)

    def __str__(self) -> str:
        return "; ".join(f"{what}: {which}" for what, which in self.rows())


def read_initial_weights(store: Store, folder: str) -> InitialWeights:
    """Read a run's ``initial_weights.json``; raises the errors of :func:`read_artifact_model`."""
    noun = "a description of initial weights"
    return read_artifact_model(store, folder, INITIAL_WEIGHTS, InitialWeights, noun)


def _named(names: Sequence[str]) -> str:
    return f"{plural(len(names), 'layer')} ({first_few(names, _FEW)})" if names else "none"


def _shapes(shapes: Sequence[tuple[int, ...]]) -> str:
    return " ".join("×".join(map(str, shape)) or "scalar" for shape in shapes)
