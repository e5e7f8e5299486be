"""Calls for a notebook: data, input tools, learning-rate finder, training, evaluation, predictions.

:func:`convert`, :func:`fit` and :func:`evaluate` are the stages of the command line, in a separate process; all other
calls run in the notebook's process.

    >>> from podline import notebook
    >>> notebook.benchmark_input("cifar10", "podline-root")

A recipe is a name, or a :class:`~podline.recipes.settings.Recipe` with your own values, see
:func:`podline.recipes.registry.override`. Calls that need a model in the notebook's process set its random seeds and
start a new Keras session, as training does; your own models stay unchanged. They use Keras with TensorFlow,
whatever ``KERAS_BACKEND`` says.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pydantic import ValidationError

from podline import use_tensorflow
from podline.base.errors import SettingsError
from podline.base.frozen import problem_in
from podline.base.progress import Reporter, silent
from podline.commands import display
from podline.contract.kind import kind_of
from podline.data.reader import open_split
from podline.data.versions.examples import Examples
from podline.data.versions.few_images import conversion_spec
from podline.documents.manifest import TRAINING, dataset_folder
from podline.ledger.inventory.catalogue import choose_dataset, dataset_for, manifest_of, training_of
from podline.ledger.requests import Request, evaluate_spec, performed
from podline.recipes import registry
from podline.recipes.settings import Recipe
from podline.settings.machine import load
from podline.settings.tensorflow_noise import quiet_tensorflow
from podline.stages.base import JUDGED
from podline.stages.from_recipe import fitted, training_spec
from podline.stages.specs import ConvertResult, EvaluateResult, TrainResult
from podline.stages.table import CONVERT, INPUT_SPEED, LR_FIND, PREDICT, SHOW, TRAIN
from podline.stages.tools import InputSpeed, InputSpeedSpec, LearningRateResult, ShowSpec
from podline.store.opening import open_store
from podline.training.plan import plan_batches
from podline.training.searches import learning_rate_spec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from matplotlib.figure import Figure

    from podline.evaluation.predicting import Predicted

Given = ParamSpec("Given")
Returned = TypeVar("Returned")

# Fields of specs whose parameters have other names here.
_PARAMETERS = {"examples": "pictures", "epochs": "draws"}

quiet_tensorflow()


def _refusing(call: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Make a call raise a SettingsError for an argument that its spec refuses."""

    @functools.wraps(call)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
        try:
            return call(*args, **kwargs)
        except ValidationError as error:
            problem = problem_in(error)
            name = ".".join(map(str, problem.loc))
            raise SettingsError(f"{_PARAMETERS.get(name, name)} = {problem.input!r}: {problem.msg}") from error

    return called


@_refusing
def benchmark_input(
    recipe: str | Recipe, root: str, *, fingerprint: str | None = None, seconds: float = 0.5
) -> InputSpeed:
    """Measure the speed of each step of a recipe's input, and of the training step; see ``podline tune input``.

    Args:
        recipe: a recipe or its name.
        root: root of the store: a folder, or ``gs://bucket/prefix``.
        fingerprint: the start of the data set's fingerprint; by default the newest data set.
        seconds: how long each step is measured, in seconds, at most 60.

    Returns:
        The figures; a notebook shows them as a table, and ``table()`` returns a pandas table.

    Raises:
        StoreError: the data set does not exist.
        SettingsError: the recipe does not exist, or does not fit the data set; or ``seconds`` is out of bounds.
    """
    use_tensorflow()
    recipe, reporter = _recipe(recipe), silent(INPUT_SPEED.name)
    found = _fingerprint(recipe, root, fingerprint, reporter)
    return INPUT_SPEED.run(InputSpeedSpec(root=root, recipe=recipe, fingerprint=found, seconds=seconds), reporter)


@dataclass(frozen=True)
class TrainingBatch:
    """A batch of a training.

    Attributes:
        step: number of the batch, from 0.
        steps: number of batches in the training.
        epoch: number of the epoch, from 0.
        ids: positions of the batch's examples in the training split, int64 (n,).
        stored: the examples' stored fields by name: ``image`` uint8 (n, height, width, channels), and the other
            fields that the recipe reads, such as ``label`` int64 (n,) of a classifier.
        augmented: the examples' fields by name, as the model receives them in this step.
    """

    step: int
    steps: int
    epoch: int
    ids: npt.NDArray[np.int64]
    stored: dict[str, npt.NDArray[Any]]
    augmented: dict[str, npt.NDArray[Any]]


@_refusing
def batch(recipe: str | Recipe, root: str, step: int = 0, *, fingerprint: str | None = None) -> TrainingBatch:
    """Return the batch of a training step; the notebook gets the same batch as the training.

    Args:
        recipe: a recipe or its name.
        root: root of the store: a folder, or ``gs://bucket/prefix``.
        step: number of the step, from 0.
        fingerprint: the start of the data set's fingerprint; by default the newest data set.

    Raises:
        StoreError: the data set does not exist.
        SettingsError: the recipe does not exist, does not fit the data set, or its training has no such step.
        ArtifactError: the data set does not match its manifest.
    """
    store, reporter = open_store(root), silent(INPUT_SPEED.name)
    recipe = _recipe(recipe)
    dataset = dataset_for(store, recipe, fingerprint, reporter)
    manifest, recipe = manifest_of(store, dataset), fitted(store, recipe, dataset.folder)
    reader = open_split(store, dataset.folder, manifest, TRAINING, reporter)
    plan = plan_batches(recipe, manifest, reader)
    if not 0 <= step < plan.total_steps:
        raise SettingsError(
            f"got step={step}, expected 0 to {plan.total_steps - 1}, the steps of a training of {recipe.name}"
        )
    # Imported here, since it imports TensorFlow.
    batches = importlib.import_module("podline.input.pipeline").TrainingInput(
        reader,
        manifest,
        kind_of(recipe).objective(recipe, manifest).fields,
        order=plan.order,
        augmentation=plan.phase(step).recipe.image_augmentation,
    )
    epoch, ids, stored = batches.read(step)
    records = plan.order.records(ids)
    return TrainingBatch(step, plan.total_steps, epoch, records, stored, batches.augmented(epoch, ids, stored))


@_refusing
def open_dataset(name: str | Recipe, root: str, *, split: str = TRAINING, fingerprint: str | None = None) -> Examples:
    """Open a converted data set as NumPy arrays, without importing TensorFlow.

    Args:
        name: a recipe, its name, or a data set's name.
        root: root of the store: a folder, or ``gs://bucket/prefix``.
        split: name of the split.
        fingerprint: the start of the data set's fingerprint; by default the newest data set.

    Returns:
        The examples by position, and their batches in the order of a training.

    Raises:
        StoreError: the data set does not exist.
        SettingsError: a part of the recipe is not installed.
        ArtifactError: the split does not exist, or the data set does not match its manifest.
    """
    store, reporter = open_store(root), silent()
    if isinstance(name, Recipe) or registry.has(name):
        dataset = dataset_for(store, _recipe(name), fingerprint, reporter)
    else:
        dataset = choose_dataset(store, name, fingerprint, reporter)
    return Examples(root, dataset.folder, split, reporter)


@_refusing
def convert(recipe: str | Recipe, root: str, source: str | Path) -> ConvertResult:
    """Convert raw data to a recipe's data set; see ``podline convert``. A complete data set is reused.

    Args:
        recipe: a recipe or its name. A recipe for your own images is named after their folder, like ``images.flowers``:
            the result's ``dataset`` is this name, and also the recipe to train.
        root: root of the store: a folder, or ``gs://bucket/prefix``.
        source: a folder or a file, here or in ``gs://``; see docs/how-to/images.md.

    Raises:
        SourceError: the source cannot be read, or is not a source of the recipe's data set.
        SettingsError: the recipe does not exist, or the name of the source's folder cannot be written in ASCII.
    """
    with _asked(root) as request:
        named, tell = registry.for_data(_recipe(recipe), None, str(source)), request.reporter(CONVERT).log
        where = {"engine": request.settings.engine, "workers": request.settings.workers}
        spec = conversion_spec(request.store, named, {}, tell, source=str(source), **where)
        return performed(spec, request.listener, request.settings)


@_refusing
def fit(recipe: str | Recipe, root: str, *, fingerprint: str | None = None) -> TrainResult:
    """Train a recipe; see ``podline train``. An interrupted run resumes, a finished run is reused.

    Interrupting the kernel acts like SIGTERM: the training saves a checkpoint first.

    Args:
        recipe: a recipe or its name.
        root: root of the store: a folder, or ``gs://bucket/prefix``.
        fingerprint: the start of the data set's fingerprint; by default the newest data set.

    Returns:
        The run's name, ``run``, with speed and loss; its curves are ``metrics.jsonl`` in ``folder``.

    Raises:
        StoreError: the data set does not exist, or the store cannot be written.
        SettingsError: the recipe does not exist, or does not fit the data set.
        SourceError: no result on the test split could be better than guessing.
        DivergenceError: a loss or gradient is not finite, or a loss exploded.
    """
    with _asked(root) as request:
        recipe, reporter = _recipe(recipe), request.reporter(TRAIN)
        found = dataset_for(request.store, recipe, fingerprint, reporter).fingerprint
        spec = training_spec(request.store, recipe, found, request.settings.strategy, reporter.log)
        return performed(spec, request.listener, request.settings)


@_refusing
def evaluate(run: str, root: str, *, split: str = JUDGED) -> EvaluateResult:
    """Evaluate a run's model on a split, every example once; see ``podline evaluate``.

    Args:
        run: the run, or a recipe, whose newest finished run is used.
        root: root of the store: a folder, or ``gs://bucket/prefix``.
        split: ``test`` or ``train``.

    Returns:
        ``metrics`` by name, each a value with its 95 % interval.

    Raises:
        StoreError: there is no such finished run.
        SettingsError: ``run`` is neither a run nor a recipe.
        SanityError: the model is not significantly better than guessing.
    """
    with _asked(root, run) as request:
        return performed(evaluate_spec(request, split), request.listener, request.settings)


@_refusing
def find_learning_rate(
    recipe: str | Recipe,
    root: str,
    *,
    run: str | None = None,
    fingerprint: str | None = None,
    low: float = 1e-5,
    high: float = 10.0,
    steps: int = 300,
) -> LearningRateResult:
    """Find a learning rate for a recipe; see ``podline tune lr``.

    Args:
        recipe: a recipe or its name.
        root: root of the store: a folder, or ``gs://bucket/prefix``.
        run: start from the newest checkpoint of this run, with the run's own recipe; the run is not changed.
        fingerprint: the start of the data set's fingerprint; by default the run's data set, or the newest.
        low: the rate of the first step.
        high: the rate of the last step.
        steps: number of steps from low to high, at least 20.

    Returns:
        The suggestion with its reasons; ``chart`` is the name of a PNG in the store.

    Raises:
        StoreError: the data set, the run, or a checkpoint of the run does not exist.
        SettingsError: the recipe does not exist or does not fit the data set, its optimizer has no learning rate, or a
            number is out of bounds.
        DivergenceError: the loss exploded within the first steps, or neither fell nor rose.
    """
    use_tensorflow()
    reporter, rates = silent(LR_FIND.name), {"low": low, "high": high, "steps": steps}
    spec = learning_rate_spec(open_store(root), _recipe(recipe), reporter, run=run, fingerprint=fingerprint, **rates)
    return LR_FIND.find(spec, reporter) or LR_FIND.run(spec, reporter)


@_refusing
def show(
    recipe: str | Recipe | None,
    root: str,
    *,
    run: str | None = None,
    fingerprint: str | None = None,
    pictures: int = 8,
    draws: int = 4,
) -> Figure:
    """Draw training examples and their augmentation, and a run's predictions; see ``podline data preview``.

    Args:
        recipe: a recipe or its name; None for the recipe of the run.
        root: root of the store: a folder, or ``gs://bucket/prefix``.
        run: a finished run whose predictions and mistakes are shown too; it determines the data set.
        fingerprint: the start of the data set's fingerprint; by default the newest data set.
        pictures: number of examples side by side, 1 to 20.
        draws: number of epochs whose augmentation is shown, 1 to 20.

    Returns:
        A figure of matplotlib, which a notebook shows; ``savefig`` writes it to a file.

    Raises:
        StoreError: the data set or the finished run does not exist.
        SettingsError: the recipe does not exist, or does not fit the data set; or a number is out of bounds.
    """
    use_tensorflow()
    training, reporter = training_of(open_store(root), run) if run else None, silent(SHOW.name)
    if recipe is None:
        if training is None:
            raise SettingsError("got neither a recipe nor a run; give one of the two")
        recipe = training.recipe
    recipe = _recipe(recipe)
    chosen = training.fingerprint if training else _fingerprint(recipe, root, fingerprint, reporter)
    spec = ShowSpec(
        root=root,
        recipe=fitted(open_store(root), recipe, dataset_folder(recipe.dataset, chosen)),
        fingerprint=chosen,
        run=run or "",
        out="",
        examples=pictures,
        epochs=draws,
    )
    # Imported here, since it imports TensorFlow, which takes seconds.
    figure, *_ = importlib.import_module("podline.evaluation.sheet").drawn(spec, reporter)
    return figure


@_refusing
def predict(
    run: str, root: str, pictures: Sequence[str | Path | npt.NDArray[np.uint8]], *, threshold: float | None = None
) -> list[Predicted]:
    """Return the answers of a finished run's model for any pictures; see ``podline models predict``. Writes nothing.

    Args:
        run: name of a finished run.
        root: root of the store: a folder, or ``gs://bucket/prefix``.
        pictures: image files, or arrays: uint8 (height, width, 3), red, green, blue; or (height, width) or
            (height, width, 1), grey.
        threshold: the lowest score of a predicted person, or probability of a predicted label; by default the
            thresholds that the run's evaluation chose, for each label its own.

    Returns:
        One object per picture; a notebook shows it, with skeletons for a pose network. ``prediction`` has the people as
        COCO results, the classes or labels with their probabilities, or the answer of an installed kind.

    Raises:
        SourceError: a file cannot be read or is not a picture, or an array has none of these shapes.
        StoreError: there is no such finished run.
        SettingsError: ``threshold`` is not from 0 to 1.
    """
    use_tensorflow()
    # Imported here, since it imports TensorFlow.
    predicting = importlib.import_module("podline.evaluation.predicting")
    predictor = predicting.Predictor(open_store(root), run, silent(PREDICT.name), threshold)
    return list(predictor(pictures))


@contextlib.contextmanager
def _asked(root: str, name: str | None = None) -> Iterator[Request]:
    """Yield the request of a stage's command: the store, this machine's settings, and a listener for progress."""
    store = open_store(root)
    with display.shown() as listener:
        yield Request(name, store, load().model_copy(update={"root": store.uri}), listener)


def _recipe(recipe: str | Recipe) -> Recipe:
    return registry.get(recipe) if isinstance(recipe, str) else recipe


def _fingerprint(recipe: Recipe, root: str, start: str | None, reporter: Reporter) -> str:
    return dataset_for(open_store(root), recipe, start, reporter).fingerprint
