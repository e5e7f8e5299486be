"""The sheet of pictures: the pixels on it are those that training and evaluation get."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from small_dataset import CLASS_NAMES, FINGERPRINT, drawn, publish_dataset, small_recipe

from podline import notebook
from podline.base.errors import StoreError
from podline.base.progress import silent
from podline.data.order import TrainingOrder
from podline.evaluation import sheet
from podline.input.augmentation import augment
from podline.kinds.by_example import sheet as class_sheet
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings, OptimizerSettings
from podline.stages.specs import TrainSpec
from podline.stages.tools import ShowSpec
from podline.store.opening import open_store
from podline.training.train import train

CHANCE = AugmentationSettings(pad=1, flip=True, cutout=3)
RECIPE = small_recipe(duration=Duration(steps=12), optimizer=OptimizerSettings(kind="adam"), augmentation=CHANCE)
SHOWN = 5


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    publish_dataset(root)
    return root


@pytest.fixture(scope="module")
def trained(root: Path) -> str:
    """A finished run's name."""
    spec = TrainSpec(root=str(root), recipe=RECIPE, fingerprint=FINGERPRINT)
    return train(spec, silent()).run


def images(figure: Figure) -> list[np.ndarray]:
    """The pictures, row by row."""
    return [np.asarray(image.get_array()) for image in figure.axes[0].images]


def texts(figure: Figure) -> list[tuple[str, str]]:
    """The texts of the sheet, those above pictures among them, and their colours."""
    return [(text.get_text(), to_hex(text.get_color())) for text in figure.axes[0].texts if text.get_text()]


def test_pictures_are_the_first_batch_as_stored_and_as_each_epoch_augments_it(root: Path) -> None:
    figure = notebook.show(RECIPE, str(root), pictures=SHOWN, draws=2)
    found = images(figure)
    source = drawn(96, 0)
    _, ids = TrainingOrder(96, 8, seed=0).batch(0)
    ids = ids[:SHOWN]
    fill = np.rint(publish_dataset(root).split("train").mean).astype(np.uint8)
    epochs = [augment(source["image"][ids], ids, CHANCE, 0, epoch, fill) for epoch in (0, 1)]
    assert np.array_equal(found, np.concatenate([source["image"][ids], *epochs]))
    assert not np.array_equal(found[SHOWN : 2 * SHOWN], found[2 * SHOWN :])
    labels = [CLASS_NAMES[label] for label in source["label"][ids]]
    assert [text for text, _ in texts(figure) if text in CLASS_NAMES] == labels * 3


def test_a_run_shows_its_guesses_right_and_wrong_and_its_worst_mistakes_first(root: Path, trained: str) -> None:
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (root / "runs").rglob("*") if path.is_file()}

    before = files()
    figure = notebook.show(None, str(root), run=trained, pictures=SHOWN, draws=1)
    assert files() == before, "looking at a run changes nothing of it"
    test, shown = drawn(40, 1), images(figure)[2 * SHOWN :]
    assert np.array_equal(shown[:SHOWN], test["image"][:SHOWN])
    judged = [(text, colour) for text, colour in texts(figure) if text.startswith(("✓", "✗"))]
    assert len(judged) == len(shown)
    for (text, colour), image in zip(judged, shown, strict=True):
        [record] = [number for number in range(40) if np.array_equal(test["image"][number], image)]
        label, right = CLASS_NAMES[test["label"][record]], text.startswith("✓")
        assert colour == (class_sheet.RIGHT if right else class_sheet.WRONG)
        assert text.startswith(f"✓ {label},") if right else text.endswith(f"\nis {label}")
    mistakes = [text for text, _ in judged[SHOWN:]]
    assert all(text.startswith("✗") for text in mistakes)
    confidences = [int(text.split(", ")[1].split(" %")[0]) for text in mistakes]
    assert confidences == sorted(confidences, reverse=True)


def test_the_stage_writes_one_png_and_counts(root: Path, trained: str, tmp_path: Path) -> None:
    out = tmp_path / "new" / "sheet.png"
    spec = ShowSpec(root=str(root), recipe=RECIPE, fingerprint=FINGERPRINT, out=str(out), run=trained)
    result = sheet.run(spec, silent())
    assert out.read_bytes().startswith(b"\x89PNG")
    assert list(out.parent.iterdir()) == [out]
    assert (result.png, result.examples) == (str(out), 40)
    assert 0 < result.correct <= 40
    with pytest.raises(StoreError, match="cannot write"):
        sheet.run(spec.model_copy(update={"run": "", "out": str(out / "beneath-a-file.png")}), silent())


def test_what_is_not_there_is_one_clear_line(root: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="make one with `podline convert sample"):
        notebook.show(RECIPE, str(tmp_path))
    unfinished = TrainSpec(root=str(root), recipe=RECIPE.model_copy(update={"seed": 9}), fingerprint=FINGERPRINT)
    open_store(root).publish_json(f"{unfinished.folder}/spec.json", unfinished.model_dump(mode="json"))
    with pytest.raises(StoreError, match=r"is not finished; finish it with `podline train t-\w+`"):
        notebook.show(None, str(root), run=unfinished.run)
