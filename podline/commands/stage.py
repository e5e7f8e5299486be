"""Commands that run one stage: ``podline convert``, ``validate``, ``train``, ``evaluate``, ``report``, ``stage``."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click

from podline.base.errors import SettingsError, StoreError
from podline.commands.options import (
    assignments_option,
    command_line,
    deep_option,
    fingerprint_option,
    launch_options,
    recipe_or_run_argument,
    run_argument,
    run_or_recipe_argument,
    strategy_option,
)
from podline.commands.stage_command import show_spec_option, stage_command
from podline.data.versions.few_images import conversion_spec
from podline.ledger.inventory.catalogue import choose_dataset, dataset_for
from podline.ledger.requests import Request, evaluate_spec
from podline.recipes import registry
from podline.stages.base import JUDGED, Spec
from podline.stages.from_recipe import converter_settings, report_spec, training_spec, validation_spec, within
from podline.stages.options import Choices, ConvertOptions, MachineGroup, RunOptions
from podline.stages.specs import ConvertSpec, EvaluateSpec, ReportSpec, TrainSpec, ValidateSpec
from podline.stages.supervision.running import perform
from podline.stages.table import CONVERT, EVALUATE, REPORT, TRAIN, VALIDATE, Stage, installed, loaded
from podline.stages.tools import Pace, PaceSpec

S = TypeVar("S", bound=Spec)

split_option = click.option(
    "--split",
    type=click.Choice(["test", "train"]),
    default=JUDGED,
    show_default=True,
    help="The split to evaluate; the results for train go into a separate folder.",
)


def _of_chain(
    stage: Stage[S, Any], *options: Callable[[Any], Any], argument: Callable[[Any], Any] = recipe_or_run_argument
) -> Callable[[Callable[..., S]], click.Command]:
    return stage_command(stage.name, argument, *options, stage=stage)


@_of_chain(
    CONVERT,
    command_line(RunOptions, "source"),
    command_line(ConvertOptions),
    command_line(MachineGroup, "engine", "workers", "beam_options"),
    assignments_option,
)
def convert(
    request: Request, source: str | None, assignments: tuple[str, ...], beam_options: tuple[str, ...], **given: Any
) -> ConvertSpec:
    """Convert raw data into TFRecord shards with a manifest.

    RECIPE is the name of a recipe or of a data set: cifar10, coco, images, or one from an installed package. The number
    of workers changes neither the folder nor the bytes. Existing shards are re-used. COCO's
    images are read from folders, or from the official zip files without unpacking: see docs/how-to/coco.md.

      podline convert cifar10 --source cifar-10-batches-py --root podline-root
      podline convert coco --source coco --root podline-root
      podline convert images --source photos --name flowers --root podline-root

    Next: `podline validate cifar10 --root podline-root`.
    """
    if source is None:
        raise SettingsError("got no --source; give --source with the folder or the file of raw data")
    options = ConvertOptions(**given)
    changes = options.changes() | Choices(assignments=assignments).changes()
    recipe = None
    if options.name or changes or not request.dataset_itself:
        recipe = registry.override(registry.for_data(request.recipe, options.name, source), changes)
    own = {name: value for name in ("side", "max_people", "keep_jpeg") if (value := getattr(options, name))}
    values: dict[str, Any] = {
        "source": source,
        "allow_left_out": options.allow_left_out,
        "engine": request.settings.engine,
        "workers": request.settings.workers,
        "beam_options": beam_options,
    }
    if recipe is None:
        dataset = request.dataset_name
        settings = converter_settings(dataset, None, own)
        return ConvertSpec(root=request.store.uri, dataset=dataset, settings=settings, **values)
    if recipe.few and options.side:
        recipe = registry.override(recipe, {"conversion.side": options.side})
    return conversion_spec(request.store, recipe, own, request.reporter(CONVERT).log, **values)


@_of_chain(VALIDATE, fingerprint_option, deep_option)
def validate(request: Request, fingerprint: str | None, deep: bool) -> ValidateSpec:
    """Verify every file of a converted data set with the checksums in the manifest.

    Each problem is listed with shard and record. RECIPE is the name of a data set or of a recipe.

      podline validate cifar10 --root podline-root
      podline validate cifar10 --deep

    Next: `podline train cifar10 --root podline-root`.
    """
    wanted = request.wanted(fingerprint)
    dataset = choose_dataset(request.store, request.dataset_name, wanted, request.reporter(VALIDATE))
    return validation_spec(request.store, dataset.name, dataset.fingerprint, deep=deep)


@_of_chain(
    TRAIN,
    command_line(Choices),
    strategy_option,
    fingerprint_option,
    click.option(
        "--dry-run", "rehearse", is_flag=True, help="Only rehearse the training, and estimate time and memory."
    ),
    *launch_options,
)
def train(request: Request, fingerprint: str | None, **changes: Any) -> TrainSpec:
    """Train a recipe on its converted data set; an interrupted run resumes from its last checkpoint.

    Recipe and data determine the run's name: other values give another run, and the same values find the finished run.
    RECIPE may also be a run of the store, whose recipe and data are used again, or the path of a Python file with a
    recipe; docs/how-to/recipe.md has an example.

      podline train cifar10 --root podline-root
      podline train cifar10 --epochs 2 --learning-rate 0.05 --set model.width=0.5
      podline train ./my_recipe.py
      podline train cifar10-0123456789ab --seed 1

    Training begins with a rehearsal: a step on the first batch, a batch of the evaluation, writing and reading a
    checkpoint, and every hook. --dry-run stops after the rehearsal, with an estimate of time and memory:

      podline train cifar10 --batch-size 1024 --set model.width=4 --dry-run

    Next: `podline evaluate` with the same recipe, or with the run.
    """
    choices = Choices(**changes)
    recipe = choices.apply(request.recipe)
    dataset = dataset_for(request.store, recipe, request.wanted(fingerprint), request.reporter(TRAIN))
    tell = request.reporter(TRAIN).log
    spec = training_spec(request.store, recipe, dataset.fingerprint, request.settings.strategy, tell)

    def measure(asked: PaceSpec) -> Pace:
        return perform(asked, request.listener, request.settings)

    return within(choices.minutes, spec, request.store, measure, tell)


@_of_chain(EVALUATE, split_option, strategy_option, assignments_option, argument=run_or_recipe_argument)
def evaluate(request: Request, split: str, assignments: tuple[str, ...]) -> EvaluateSpec:
    """Evaluate a trained model on every test example, with 95 % intervals.

    RUN is a run of the store, or a recipe; a recipe means its newest finished run. The same network with random weights
    is evaluated too. If the model is not better than guessing, the exit code is 7, but `podline report` still works.
    For a pose network, the command writes the people as COCO results, and the metrics equal pycocotools'.

      podline evaluate cifar10 --root podline-root
      podline evaluate cifar10-0123456789ab --set task.views=6
      podline evaluate coco_pose --split train --root podline-root

    Next: `podline report` with the same run or recipe.
    """
    return evaluate_spec(request, split, assignments)


@_of_chain(REPORT, split_option, assignments_option, argument=run_or_recipe_argument)
def report(request: Request, split: str, assignments: tuple[str, ...]) -> ReportSpec:
    """Write a run's report as an HTML page and as Markdown.

    RUN is a run of the store, or a recipe; a recipe means its newest finished run.

      podline report cifar10 --root podline-root

    `podline runs compare RUN RUN --charts` writes a page about several runs.
    """
    spec = evaluate_spec(request, split, assignments)
    evaluated = EVALUATE.find(spec, request.reporter(EVALUATE))
    if evaluated is None:
        on = "" if split == JUDGED else f" --split {split}"
        raise StoreError(
            f"{spec.root} has no evaluation of {spec.run}{on}; run `podline evaluate {spec.run}{on}` first"
        )
    command = f"podline train {spec.run} --root {shlex.quote(spec.root)}"
    return report_spec(request.store, spec, evaluated.evaluation_sha256, command)


@stage_command("stage", click.argument("name", metavar="NAME"), run_argument, show_spec_option)
def installed_stage(request: Request, name: str, run: str) -> Spec:
    """Run a stage that an installed package adds, for a run of the store; docs/how-to/stage.md has an example.

      podline stage webhook sample-0123456789ab --root podline-root

    `podline run` runs these stages automatically. `podline runs list` shows the runs.
    """
    if name not in installed():
        there = "; ".join((", ".join(installed()) or "no installed package adds a stage", *loaded().problems))
        raise SettingsError(f"got {name!r}, expected a stage of an installed package: {there}")
    return installed()[name].spec_of(request.store, run)
