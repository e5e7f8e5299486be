"""Commands that run one stage: ``podline convert``, ``validate``, ``train``, ``evaluate``, ``report``, ``stage``."""

from __future__ import annotations

import functools
import re
import shlex
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from podline import entry_points
from podline.commands import display, pages
from podline.commands.options import (
    answer,
    assignments_option,
    conversion_options,
    deep_option,
    fingerprint_option,
    in_order,
    json_option,
    launch_options,
    load_settings,
    recipe_of,
    recipe_options,
    recipe_or_run_argument,
    run_argument,
    run_or_recipe_argument,
    say_json,
    source_option,
    store_options,
    strategy_option,
)
from podline.datasets.few_images import convertible
from podline.errors import SettingsError, StoreError
from podline.inventory.catalogue import choose_dataset, dataset_for, run_of, training_of
from podline.inventory.catalogue import datasets as catalogued
from podline.ledger import ledger
from podline.ledger.recording import recorded
from podline.options import Choices, ConvertOptions
from podline.progress import Listener, Reporter
from podline.recipes import datasets, registry
from podline.recipes.settings import Recipe
from podline.settings import Settings, cluster
from podline.stages.from_recipe import (
    converter_settings,
    evaluation_spec,
    report_spec,
    training_spec,
    validation_spec,
    within,
)
from podline.stages.specs import (
    JUDGED,
    ConvertSpec,
    EvaluateSpec,
    ReportSpec,
    Result,
    Spec,
    TrainResult,
    TrainSpec,
    ValidateSpec,
)
from podline.stages.table import CONVERT, EVALUATE, REPORT, TRAIN, VALIDATE, Stage, installed, loaded, stage_of
from podline.stages.tools import Pace, PaceSpec, PreflightSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.supervision.running import perform

S = TypeVar("S", bound=Spec)
Performer = Callable[[Any, Listener, Settings], Any]

# A run's name is its recipe's name and twelve digits of a hash.
_RUN = re.compile(r"[a-z0-9][a-z0-9_.-]*-[0-9a-f]{12}")
# Ray is an optional dependency.
_LAUNCHED = "podline.supervision.ray_hosts:launched"
_spec_option = click.option(
    "--spec",
    "spec_file",
    type=click.File(),
    help="Read the spec from a JSON file (- is standard input); see --show-spec.",
)
_show_spec_option = click.option("--show-spec", is_flag=True, help="Only print the spec as JSON for --spec.")
split_option = click.option(
    "--split",
    type=click.Choice(["test", "train"]),
    default=JUDGED,
    show_default=True,
    help="The split to evaluate on; for train, the result goes into a separate folder.",
)


class Request(NamedTuple):
    """The options of every stage command: a recipe's name, a store, the settings, and a listener."""

    name: str | None
    store: Store
    settings: Settings
    listener: Listener

    @property
    def dataset_name(self) -> str:
        """Return the data set itself, or the recipe's data set."""
        return self.dataset_itself or self.recipe.dataset

    @property
    def dataset_itself(self) -> str | None:
        """Return the name if it is a data set's, even if its package is missing, and not a recipe's."""
        name = self.name
        if name is None or registry.has(name):
            return None
        stored = datasets.known(name) is not None or name in {dataset.name for dataset in catalogued(self.store)}
        return name if stored else None

    @property
    def trained(self) -> TrainSpec | None:
        """Return the training spec of the run with this name, or None."""
        name = self.name or ""
        return training_of(self.store, name) if _RUN.fullmatch(name) and not registry.has(name) else None

    @property
    def recipe(self) -> Recipe:
        """Return the recipe as defined, or as a run of the store was trained with it."""
        trained = self.trained
        return trained.recipe if trained else recipe_of(self.name)

    def wanted(self, fingerprint: str | None) -> str | None:
        """Return the requested fingerprint, else the named run's, else None."""
        trained = self.trained
        return fingerprint or (trained.fingerprint if trained else None)

    def reporter(self, stage: Stage[Any, Any]) -> Reporter:
        """Return a reporter for a stage."""
        return Reporter(stage.name, self.listener)


def _stage_command(
    stage: Stage[S, Any], *options: Callable[[Any], Any], argument: Callable[[Any], Any] = recipe_or_run_argument
) -> Callable[[Callable[..., S]], click.Command]:
    """Make the command of a stage from a function that makes its spec; the function's docstring is the help."""

    def decorate(make_spec: Callable[..., S]) -> click.Command:
        def run(recipe: str | None, spec_file: Any, show_spec: bool, as_json: bool, **given: Any) -> None:
            settings, dry_run, launch = load_settings(given), given.pop("dry_run", False), given.pop("launch", None)
            with display.shown() as listener:
                request = Request(recipe, open_store(settings.root), settings, listener)
                spec = make_spec(request, **given) if spec_file is None else _read_spec(stage, spec_file)
                if dry_run:
                    spec = PreflightSpec.model_validate(spec.model_dump())
                by = functools.partial(entry_points.load(_LAUNCHED), launch.partition(":")[2]) if launch else perform
                result = None if show_spec else performed(spec, listener, settings, by)
            _say_result(spec, result, as_json=as_json)

        shared = (_spec_option, _show_spec_option, json_option, store_options)
        decorated = in_order(argument, *options, *shared)(run)
        return click.command(stage.name, cls=pages.Command, help=make_spec.__doc__)(decorated)

    return decorate


def _say_result(spec: Spec, result: Result | None, *, as_json: bool) -> None:
    """Print a stage's result; print its spec if it did not run."""
    if result is None:
        say_json(spec.model_dump(mode="json"))
    else:
        answer(result, lambda: result.lines(open_store(spec.root).where), as_json=as_json)


def trainer(store: Store, settings: Settings, listener: Listener) -> Callable[[TrainSpec], TrainResult]:
    """Return a function that trains a spec or finds its result; each training gets an entry in the ledger."""

    def train(spec: TrainSpec) -> TrainResult:
        started = time.monotonic()
        with recorded(store, spec.recipe.name, "commands", Reporter("ledger", listener)) as notes:
            notes.planned(spec.recipe, settings, spec.strategy)
            notes.asked(spec)
            result = perform(spec, listener, settings)
            notes.answered(spec, result, time.monotonic() - started)
            notes.dropped = result.reused
        return result

    return train


def performed(spec: Any, listener: Listener, settings: Settings, by: Performer = perform) -> Any:
    """Run a stage and return its result.

    A run's training and evaluation share one ledger entry. It is written when the evaluation has ended, or when either
    stage has failed.
    """
    stage, store = stage_of(spec), open_store(spec.root)
    beside = by is perform and spec.by_workers and cluster().place
    training = None if beside else _training_of(spec, store)
    if training is None:
        result = by(spec, listener, settings)
        result.require_sane()
        return result
    with recorded(store, training.recipe.name, "commands", Reporter("ledger", listener)) as notes:
        notes.planned(training.recipe, settings, spec.strategy)
        notes.asked(training)
        if stage is EVALUATE:
            trained = run_of(store, spec.run).stages[TRAIN.name].result
            notes.answered(training, TrainResult.model_validate({**trained, "reused": True}), 0.0)
        started = time.monotonic()
        result = by(spec, listener, settings)
        notes.answered(spec, result, time.monotonic() - started)
        result.require_sane()
        # The evaluation follows the training. A finished evaluation has its entry, unless its command was killed before
        # writing it.
        notes.dropped = stage is TRAIN or (result.reused and _is_recorded(store, training))
    return result


def _is_recorded(store: Store, training: TrainSpec) -> bool:
    """Return whether the ledger has an entry of a finished run; the newest entries are searched first."""
    finished = ledger.names(store, recipe=training.recipe.name, state="finished")
    return any(entry.run == training.run for entry in ledger.entries(store, finished, damaged=lambda _: None))


def _training_of(spec: Any, store: Store) -> TrainSpec | None:
    """Return the training whose ledger entry this command writes, or None."""
    stage = stage_of(spec)
    if stage is TRAIN:
        return spec
    return training_of(store, spec.run) if stage is EVALUATE and spec.split == JUDGED else None


def _read_spec(stage: Stage[S, Any], file: Any) -> S:
    try:
        return stage.spec.model_validate_json(file.read())
    except (ValueError, SettingsError) as error:
        problem = "; ".join(str(error).splitlines()[1:3]).strip() or str(error)
        raise SettingsError(f"{file.name} is not a spec of {stage.name}: {problem}") from None


@_stage_command(CONVERT, source_option, conversion_options, assignments_option)
def convert(
    request: Request, source: str | None, assignments: tuple[str, ...], beam_options: tuple[str, ...], **given: Any
) -> ConvertSpec:
    """Convert raw archives into sharded TFRecords with a manifest.

    RECIPE is a recipe's name, or a data set's: cifar10, coco, images, or an installed package's. A source always gives
    the same folder and the same bytes, with any number of workers; existing shards are not written again. COCO's images
    are read from folders or from the official zip files, without unpacking: see docs/how-to/coco.md.

      podline convert cifar10 --source cifar-10-batches-py --root podline-root
      podline convert coco --source coco --root podline-root
      podline convert images --source photos --name flowers --root podline-root

    Next: `podline validate cifar10 --root podline-root`.
    """
    if source is None:
        raise SettingsError("where is the raw data? give --source DIR")
    options = ConvertOptions(**given)
    changes = options.changes() | Choices(assignments=assignments).changes()
    recipe = None
    if options.name or changes or not request.dataset_itself:
        recipe = registry.override(registry.for_data(request.recipe, options.name, source), changes)
    dataset = recipe.dataset if recipe else request.dataset_name
    own = {name: value for name in ("side", "max_people", "keep_jpeg") if (value := getattr(options, name))}

    def spec_of(recipe: Recipe | None) -> ConvertSpec:
        return ConvertSpec(
            root=request.store.uri,
            dataset=dataset,
            source=source,
            settings=converter_settings(dataset, recipe, own),
            allow_left_out=options.allow_left_out,
            engine=request.settings.engine,
            workers=request.settings.workers,
            beam_options=beam_options,
        )

    tell = request.reporter(CONVERT).log
    if recipe and recipe.few and options.side:
        recipe = registry.override(recipe, {"conversion.side": options.side})
    return convertible(request.store, recipe, spec_of, tell) if recipe else spec_of(None)


@_stage_command(VALIDATE, fingerprint_option, deep_option)
def validate(request: Request, fingerprint: str | None, deep: bool) -> ValidateSpec:
    """Verify every file of a converted data set by the checksums of its manifest.

    Each problem is listed with its shard and record. RECIPE is a data set, or a recipe, whose data set is verified.

      podline validate cifar10 --root podline-root
      podline validate cifar10 --deep

    Next: `podline train cifar10 --root podline-root`.
    """
    wanted = request.wanted(fingerprint)
    dataset = choose_dataset(request.store, request.dataset_name, wanted, request.reporter(VALIDATE))
    return validation_spec(request.store, dataset.name, dataset.fingerprint, deep=deep)


@_stage_command(
    TRAIN,
    recipe_options,
    strategy_option,
    fingerprint_option,
    click.option("--dry-run", is_flag=True, help="Only rehearse the training, and estimate its time and memory."),
    *launch_options,
)
def train(request: Request, fingerprint: str | None, **changes: Any) -> TrainSpec:
    """Train a recipe on its converted data set; an interrupted run resumes from its last checkpoint.

    Recipe and data determine the run's name: other values give another run, and the same values find the finished one.
    RECIPE may also be the path of a Python file with a recipe, or a run of the store, whose recipe and data are then
    used again. docs/how-to/recipe.md has an example of such a file.

      podline train cifar10 --root podline-root
      podline train cifar10 --epochs 2 --learning-rate 0.05 --set model.width=0.5
      podline train ./my_recipe.py
      podline train cifar10-0123456789ab --seed 1

    Training begins with a rehearsal: a step on the first batch, a batch of the evaluation, a checkpoint written and
    read back, every hook. --dry-run stops after it, with an estimate of time and memory:

      podline train cifar10 --batch-size 1024 --set model.width=4 --dry-run

    Next: `podline evaluate` with the same recipe or the run.
    """
    choices = Choices(**changes)
    recipe = choices.apply(request.recipe)
    dataset = dataset_for(request.store, recipe, request.wanted(fingerprint), request.reporter(TRAIN))
    tell = request.reporter(TRAIN).log
    spec = training_spec(request.store, recipe, dataset.fingerprint, request.settings.strategy, tell)

    def measure(asked: PaceSpec) -> Pace:
        return perform(asked, request.listener, request.settings)

    return within(choices.minutes, spec, request.store, measure, tell)


@_stage_command(EVALUATE, split_option, strategy_option, assignments_option, argument=run_or_recipe_argument)
def evaluate(request: Request, split: str, assignments: tuple[str, ...]) -> EvaluateSpec:
    """Evaluate a trained model on every test example, with 95 % intervals.

    RUN is a run of the store, or a recipe, whose newest finished run is used. The same network with random weights is
    evaluated too. A model that is no better than guessing ends with exit code 7, but `podline report` still works. A
    pose network's people are written as COCO results, and its figures are pycocotools'.

      podline evaluate cifar10 --root podline-root
      podline evaluate cifar10-0123456789ab --set task.views=6
      podline evaluate coco_pose --split train --root podline-root

    Next: `podline report` with the same run or recipe.
    """
    return evaluate_spec(request, split, assignments)


@_stage_command(REPORT, split_option, assignments_option, argument=run_or_recipe_argument)
def report(request: Request, split: str, assignments: tuple[str, ...]) -> ReportSpec:
    """Write a run's report as an HTML page and as Markdown.

    RUN is a run of the store, or a recipe, whose newest finished run is used.

      podline report cifar10 --root podline-root

    `podline runs compare RUN RUN --charts` writes one page about several runs.
    """
    spec = evaluate_spec(request, split, assignments)
    evaluated = EVALUATE.find(spec, request.reporter(EVALUATE))
    if evaluated is None:
        raise StoreError(f"{spec.root} has no evaluation of {spec.run}; run `podline evaluate {spec.run}` first")
    command = f"podline train {spec.run} --root {shlex.quote(spec.root)}"
    return report_spec(request.store, spec, evaluated.evaluation_sha256, command)


@click.command("stage", cls=pages.Command)
@click.argument("name", metavar="NAME")
@run_argument
@in_order(_show_spec_option, json_option, store_options)
def stage_command(name: str, run: str, show_spec: bool, as_json: bool, **given: Any) -> None:
    """Run a stage of an installed package for a run of the store; docs/how-to/stage.md has an example.

    podline stage webhook sample-0123456789ab --root podline-root

    `podline run` runs such stages itself. `podline runs list` shows the runs.
    """
    if name not in installed():
        there = "; ".join((", ".join(installed()) or "no package is installed that adds one", *loaded().problems))
        raise SettingsError(f"got {name!r}, expected an installed stage: {there}")
    settings = load_settings(given)
    with display.shown() as listener:
        spec = installed()[name].spec_of(open_store(settings.root), run)
        result = None if show_spec else performed(spec, listener, settings)
    _say_result(spec, result, as_json=as_json)


def evaluate_spec(request: Request, split: str, assignments: tuple[str, ...] = ()) -> EvaluateSpec:
    """Return the evaluation spec of the named run, or of the recipe's newest finished run.

    Raises:
        StoreError: there is no such finished run.
        SettingsError: an assignment would change the run's name.
    """
    stored = request.trained or training_of(request.store, _newest_run(request.store, request.recipe.name))
    recipe = Choices(assignments=assignments).apply(stored.recipe)
    training = stored.model_copy(update={"recipe": recipe, "strategy": request.settings.strategy})
    if training.run != stored.run:
        raise SettingsError(
            f"got --set {' '.join(assignments)}, expected values that are no part of a run's name; `podline train "
            f"{stored.run} --set …` trains another run"
        )
    trained = TRAIN.find(training, request.reporter(TRAIN))
    if trained is None:
        raise StoreError(f"{stored.root}: {stored.run} is not trained; run `podline train {stored.run}` first")
    return evaluation_spec(training, trained, split)


def _newest_run(store: Store, recipe: str) -> str:
    """Return the run of a recipe whose training ended last."""
    record = re.compile(rf"runs/({re.escape(recipe)}-[0-9a-f]{{12}})/stages/train\.json")
    found = [(each.published, match[1]) for each in store.listing("runs") if (match := record.fullmatch(each.name))]
    if not found:
        raise StoreError(f"{store.uri} has no finished run of {recipe}; run `podline train {recipe}` first")
    return max(found)[1]
