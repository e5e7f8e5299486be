"""Converted examples as arrays, without TensorFlow: in a process of its own, and by PyTorch's workers."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_dataset import CLASS_NAMES, FINGERPRINT, drawn, publish_dataset, small_recipe

from podline import notebook
from podline.datasets.examples import Examples
from podline.errors import ArtifactError, StoreError

TRAIN, TEST = 48, 12
STEPS = 9
NO_TORCH = "PyTorch is not installed: uv pip install torch"


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


def test_it_says_what_it_is(examples: Examples, root: str) -> None:
    assert (len(examples), examples.classes) == (TRAIN, CLASS_NAMES)
    assert examples.manifest.fingerprint == FINGERPRINT
    assert repr(examples) == f"<{TRAIN} train examples of sample/{FINGERPRINT}>"
    assert len(notebook.open_dataset(small_recipe(), root, split="test", fingerprint="0123")) == TEST
    assert len(list(examples)) == TRAIN


@pytest.mark.parametrize(("ids", "error"), [(TRAIN, IndexError), ([0, -TRAIN - 1], IndexError), ([1.0], TypeError)])
def test_positions_that_cannot_be_are_refused(examples: Examples, ids: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        examples[ids]
    with pytest.raises(TypeError, match=re.escape("numpy.flatnonzero")):
        examples[np.arange(TRAIN) < 3]


def test_a_data_set_or_split_that_there_is_not_is_refused(root: str) -> None:
    with pytest.raises(StoreError, match="no data set nothing"):
        notebook.open_dataset("nothing", root)
    with pytest.raises(ArtifactError, match="no split 'validation'"):
        notebook.open_dataset("sample", root, split="validation")


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


def test_it_needs_no_tensorflow(root: str) -> None:
    code = (
        "import sys\n"
        "from podline import notebook\n"
        f"examples = notebook.open_dataset('sample', {root!r})\n"
        "examples[0], next(iter(examples.batches(16, seed=0)))\n"
        "print(*({'tensorflow', 'keras', 'apache_beam', 'prefect'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


@pytest.mark.parametrize("start_method", [None, "fork", "spawn"])
def test_workers_of_pytorch_read_the_same_batches(examples: Examples, start_method: str | None) -> None:
    data = pytest.importorskip("torch.utils.data", reason=NO_TORCH)
    batches = examples.batches(16, seed=3, epochs=3, start=2)
    workers = {"num_workers": 2, "multiprocessing_context": start_method} if start_method else {}
    loaded = list(data.DataLoader(batches, batch_size=None, **workers))
    assert len(loaded) == STEPS - 2
    for found, expected in zip(loaded, batches, strict=True):
        equal({name: tensor.numpy() for name, tensor in found.items()}, expected)


def test_pytorch_may_shuffle_single_examples(examples: Examples) -> None:
    data = pytest.importorskip("torch.utils.data", reason=NO_TORCH)
    loaded = list(data.DataLoader(examples, batch_size=20, shuffle=True))
    assert [len(batch["label"]) for batch in loaded] == [20, 20, 8]
    labels = np.concatenate([batch["label"].numpy() for batch in loaded])
    np.testing.assert_array_equal(np.sort(labels), np.sort(drawn(TRAIN, 0)["label"]))


# A training in PyTorch that saves weights and step after each step, and is killed in the middle of one.
TRAINING = """
import os, signal, sys
import torch
from podline import notebook

root, saved, dies_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8 * 8 * 3, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
step = 0
if os.path.exists(saved):
    state = torch.load(saved)
    step = state["step"]
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
examples = notebook.open_dataset("sample", root)
for batch in torch.utils.data.DataLoader(examples.batches(16, seed=3, epochs=3, start=step), batch_size=None):
    loss = torch.nn.functional.cross_entropy(model(batch["image"] / 255), batch["label"])
    optimizer.zero_grad()
    loss.backward()
    if step == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
    step += 1
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, saved + ".new")
    os.replace(saved + ".new", saved)
"""


def test_a_killed_training_in_pytorch_ends_with_the_weights_of_one_that_was_not(root: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason=NO_TORCH)

    def trained(name: str, dies_at: int) -> int:
        line = [sys.executable, "-c", TRAINING, root, str(tmp_path / name), str(dies_at)]
        return subprocess.run(line, check=False).returncode

    assert trained("whole", -1) == 0
    assert trained("killed", 5) == -9
    assert torch.load(tmp_path / "killed")["step"] == 5
    assert trained("killed", -1) == 0
    whole, killed = (torch.load(tmp_path / name) for name in ("whole", "killed"))
    assert killed["step"] == whole["step"] == STEPS
    for name, weights in whole["model"].items():
        assert torch.equal(weights, killed["model"][name])
