"""Converted examples as arrays, without TensorFlow: as batches, in copies, and by PyTorch."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
from small_dataset import CLASS_NAMES, FINGERPRINT, drawn, publish_dataset, small_recipe

from podline import notebook
from podline.base.errors import ArtifactError
from podline.data.versions.examples import Examples

TRAIN, TEST = 48, 12
STEPS = 9


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("root")
    publish_dataset(root, train=TRAIN, test=TEST)
    return str(root)


@pytest.fixture
def examples(root: str) -> Examples:
    return notebook.open_dataset("sample", root)


def equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name])


@pytest.mark.parametrize(
    "ids", [5, -1, np.int64(7), [3, 0, -2], np.array([[1, 2], [3, 4]]), slice(40, None), slice(None, None, -7), []]
)
def test_examples_are_indexed_like_arrays(examples: Examples, ids: Any) -> None:
    places = np.array(ids, np.int64) if isinstance(ids, list) else ids
    equal(examples[ids], {name: values[places] for name, values in drawn(TRAIN, 0).items()})
    assert np.shape(examples.names(ids)) == np.shape(examples[ids]["label"])


def test_indices_may_be_of_a_type_that_cannot_hold_the_number_of_examples(
    examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Examples, "__len__", lambda _self: 300)
    equal(examples[np.array([3, 47], np.uint8)], examples[[3, 47]])


def test_it_says_what_it_is(examples: Examples, root: str) -> None:
    assert (len(examples), examples.classes) == (TRAIN, CLASS_NAMES)
    assert examples.manifest.fingerprint == FINGERPRINT
    assert len(notebook.open_dataset(small_recipe(), root, split="test", fingerprint="0123")) == TEST
    assert len(list(examples)) == TRAIN
    with pytest.raises(ArtifactError, match="no split 'validation'"):
        notebook.open_dataset("sample", root, split="validation")


@pytest.mark.parametrize(("ids", "error"), [(TRAIN, IndexError), ([0, -TRAIN - 1], IndexError), ([1.0], TypeError)])
def test_positions_that_cannot_be_are_refused(examples: Examples, ids: Any, error: type[Exception]) -> None:
    for read in (examples.__getitem__, examples.names):
        with pytest.raises(error):
            read(ids)
    with pytest.raises(TypeError, match=re.escape("numpy.flatnonzero")):
        examples[np.arange(TRAIN) < 3]


def test_batches_are_those_of_the_training(examples: Examples, root: str) -> None:
    recipe = small_recipe(seed=3, batch_size=16)
    batches = examples.batches(16, seed=3, epochs=3)
    assert len(batches) == STEPS
    for step in (0, 5, 2):
        trained = notebook.batch(recipe, root, step)
        np.testing.assert_array_equal(batches.ids(step), trained.ids)
        equal(batches[step], trained.stored)


def test_batches_go_on_at_a_step(examples: Examples) -> None:
    whole = list(examples.batches(16, seed=3, epochs=3))
    for later in (examples.batches(16, seed=3, epochs=3, start=4), examples.batches(16, seed=3, epochs=3)[4:]):
        assert list(later.steps) == [4, 5, 6, 7, 8]
        for one, other in zip(later, whole[4:], strict=True):
            equal(one, other)
    assert len(examples.batches(16, seed=3, start=3)) == 0
    with pytest.raises(ValueError, match="got start=4, expected 0 to 3"):
        examples.batches(16, seed=3, start=4)


def test_a_copy_opens_the_store_again(examples: Examples) -> None:
    batches = examples.batches(16, seed=3)
    data = pickle.dumps(batches)
    assert len(data) < 8 * TRAIN + 2_000  # the order's ids, and no pixels
    equal(pickle.loads(data)[1], batches[1])


def test_workers_of_pytorch_read_the_same_batches(examples: Examples) -> None:
    data = pytest.importorskip("torch.utils.data", reason="PyTorch is not installed: uv pip install torch")
    batches = examples.batches(16, seed=3, epochs=3, start=2)
    loaded = list(data.DataLoader(batches, batch_size=None, num_workers=2))
    assert len(loaded) == STEPS - 2
    for found, expected in zip(loaded, batches, strict=True):
        equal({name: tensor.numpy() for name, tensor in found.items()}, expected)
