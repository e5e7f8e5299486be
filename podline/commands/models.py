"""``podline models``: describes and checks models, and promotes champions."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from podline.base.errors import ArtifactError, PodlineError, RefusedError, SettingsError, StoreError, UndecidedError
from podline.base.figures import count, moment, percent, pflop, short_count, size
from podline.base.plurals import plural
from podline.champions.serving.layout import require_champion
from podline.commands import display, model_use, pages
from podline.commands.options import (
    Whole,
    answer,
    assignments_option,
    command_line,
    complete_recipe,
    in_order,
    in_store,
    json_option,
    load_settings,
    raise_damaged,
    recipe_argument,
    run_argument,
    say,
    say_json,
)
from podline.commands.stage_command import stage_command
from podline.contract.kind import kind_of
from podline.documents import champions
from podline.documents.champions import Crowned
from podline.documents.completion import completion_name, result_in
from podline.documents.manifest import TRAINING
from podline.documents.metric import Metric
from podline.documents.model_description import LayerDescription, ModelDescription, training_pflop
from podline.ledger.inventory.catalogue import completion_of, train_result, training_of
from podline.ledger.requests import Request, recipe_of
from podline.recipes import datasets
from podline.recipes.datasets import DataSet
from podline.recipes.kind_table import all_facts
from podline.recipes.measures import measure_named, metric_text
from podline.recipes.own_code import with_code
from podline.recipes.parts import MODELS
from podline.recipes.settings import AugmentationSettings, Recipe
from podline.settings.environment import search_first
from podline.stages.from_recipe import promotion_spec
from podline.stages.options import Choices, TrainingGroup
from podline.stages.specs import EvaluateResult, PromoteResult, PromoteSpec
from podline.stages.supervision.running import perform
from podline.stages.table import EVALUATE
from podline.stages.tools import ModelCheckSpec
from podline.store.contract import Store
from podline.training.plan import examples_by_phase

_reason_option = click.option("--reason", default="", metavar="TEXT", help="The reason, for the history.")
_CHANNELS = 3
# The first checks must succeed; else the model is of no use.
_NEEDED = 4
_ERRORS = {"refused": RefusedError, "undecided": UndecidedError}
_EXIT_CODES = {"promoted": 0, "refused": RefusedError.exit_code, "undecided": UndecidedError.exit_code}


@click.group("models", cls=pages.Group)
def models_group() -> None:
    """Describe and check models; promote, serve and export champions; predict with models."""


@models_group.command("list")
@click.argument("recipe", metavar="[RECIPE]", required=False, shell_complete=complete_recipe)
@in_store
def list_models(store: Store, recipe: str | None, as_json: bool) -> None:
    """List the champion of every recipe, or all champions of one recipe, newest first.

    Each line has run, main metric and date. Damaged entries are listed at the end. `podline runs list --export` and
    `podline runs nights` show the verdicts about all other runs.

      podline models list --root podline-root
      podline models list sample --root podline-root

    Next: `podline models serve RECIPE`.
    """
    damaged: list[PodlineError] = []
    if recipe is None:
        found = _champions(store, damaged)
    else:
        found = [(f"{entry.number:>4}", recipe, entry) for entry in champions.history(store, recipe)[::-1]]
        if not as_json:
            require_champion(store, recipe)
    documents, lines = [], []
    for label, of, entry in found:
        try:
            documents.append(_document(store, of, entry))
            lines.append(f"{label}  {_line(store, entry)}")
        except (ArtifactError, StoreError) as error:
            damaged.append(error)
    if lines or as_json or not damaged:
        none = [f"{store.uri} has no champion; make one with `podline models promote RUN`"]
        answer(documents, lambda: lines or none, as_json=as_json)
    raise_damaged(damaged)


def _champions(store: Store, damaged: list[PodlineError]) -> list[tuple[str, str, Crowned]]:
    """Return label, recipe and champion of each recipe; append the errors of damaged histories to ``damaged``."""
    recipes, found = champions.recipes(store), []
    width = max(map(len, recipes), default=0)
    for recipe in recipes:
        try:
            if (entry := champions.champion(store, recipe)) is not None:
                found.append((f"{recipe:{width}}", recipe, entry))
        except (ArtifactError, StoreError) as error:
            damaged.append(error)
    return found


@models_group.command("describe")
@recipe_argument
@in_order(command_line(TrainingGroup, "model", "assignments"))
@json_option
def describe_model(recipe: str, as_json: bool, **changes: Any) -> None:
    """Show a recipe's model: layers, parameters, bytes, multiply-adds, and the training's PFLOP.

      podline models describe cifar10
      podline models describe cifar100 --model mobilenetv2 --set model.width=0.5
      podline models describe coco_pose --set task.side=368

    The last column is the share of padding in a layer's output on a TPU, which stores arrays in tiles of 8 × 128, with
    the recipe's batch size on one core. Multiples of 128 channels need no padding.
    """
    chosen = Choices(**changes).apply(recipe_of(recipe))
    dataset = datasets.find(chosen.dataset)
    shape, classes = dataset.image_shape or (0, 0, 0), dataset.classes or 0
    description = kind_of(chosen).description(chosen, shape, classes, {})
    answer(
        description,
        lambda: [*_layers(description, chosen.batch_size), _training(chosen, dataset, description)],
        as_json=as_json,
    )


@models_group.command("check")
@click.argument("model", metavar="MODEL")
@click.option("--side", type=Whole(1), default=32, show_default=True, help="Width and height of the images, in pixels.")
@click.option("--classes", type=Whole(1), default=10, show_default=True, help="The number of classes.")
@assignments_option
@json_option
def check_model(model: str, side: int, classes: int, assignments: tuple[str, ...], as_json: bool) -> None:
    """Try training, resuming, publishing, replicas, bfloat16, XLA and TFLite with a model, without data.

    MODEL is the name of a model, or FILE.py:FUNCTION for a model that is not in a package yet.

      podline models check vit --set model.depth=2
      podline models check my_models.py:vit --side 64 --classes 5

    Each check prints a line with a figure, or with the cause of the failure. The command takes a minute or two. It
    exits with code 2 if the model cannot be trained, resumed or published. See docs/how-to/model.md.
    """
    with tempfile.TemporaryDirectory(prefix="podline-check-") as folder:
        name = model if ".py:" not in model else _as_package(model, Path(folder))
        recipe = Choices(model=name, assignments=assignments).apply(recipe_of("sample"))
        spec = ModelCheckSpec(
            root=f"{folder}/root", recipe=with_code(recipe), image_shape=(side, side, _CHANNELS), classes=classes
        )
        with display.shown() as listener:
            found = perform(spec, listener, load_settings({"root": spec.root}))
    answer(found, found.lines, as_json=as_json)
    if any(part.works is False for part in found.parts[:_NEEDED]):
        click.get_current_context().exit(SettingsError.exit_code)


def _as_package(place: str, folder: Path) -> str:
    """Register FILE.py:FUNCTION as a model, for this process and its children; return the model's name."""
    file, _, function = place.rpartition(":")
    path = Path(file).expanduser().absolute()
    if not path.is_file():
        raise SettingsError(f"the file {file} does not exist; give MODEL as FILE.py:FUNCTION, or the name of a model")
    name = function.lower()
    about = folder / "podline_checked-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: podline-checked\nVersion: 0\n")
    (about / "entry_points.txt").write_text(f"[{MODELS.group}]\n{name} = {path.stem}:{function}\n")
    search_first([folder, path.parent])
    return name


def _training(recipe: Recipe, dataset: DataSet, description: ModelDescription) -> str:
    """Return the cost of a training as text; of a million examples if the number of images is unknown."""
    if not dataset.published:
        return f"training              {pflop(training_pflop(description.multiply_adds, 10**6))} for a million examples"
    images = dataset.code(dataset.published).records[TRAINING]
    cost = sum(
        training_pflop(_multiply_adds(phase, description), examples)
        for phase, examples in examples_by_phase(recipe, images)
    )
    return f"training              {pflop(cost)} for {recipe.duration} of {plural(images, 'image')}"


def _multiply_adds(recipe: Recipe, description: ModelDescription) -> int:
    """Return the multiply-adds for an image in a phase of the training, which may have its own image size."""
    from podline.input.augmentation import scaled_shape  # noqa: PLC0415 (it imports OpenCV)

    augmentation = recipe.image_augmentation
    longer = augmentation.image_size if isinstance(augmentation, AugmentationSettings) else 0
    shape = scaled_shape(description.image_shape, longer)
    if shape == description.image_shape:
        return description.multiply_adds
    return kind_of(recipe).description(recipe, shape, description.classes, {}).multiply_adds


def _layers(description: ModelDescription, batch_size: int) -> list[str]:
    width = max(len(layer.name) for layer in description.layers)
    head = (
        f"{'layer':{width}}  {'kind':20} {'output':14} {'parameters':>12} {'multiply-adds':>15} {'padding on TPU':>15}"
    )
    lines = [head, *(_layer(layer, width, batch_size) for layer in description.layers)]
    shape = " × ".join(map(str, description.image_shape))
    lines += [
        "",
        f"{description.kind} for {shape} images"
        + (f" and {plural(description.classes, 'class', 'classes')}" if description.classes else ""),
        f"parameters            {count(description.parameters)} ({size(description.bytes)})",
        f"trainable parameters  {count(description.trainable_parameters)} ({size(description.trainable_bytes)})",
        f"multiply-adds         {short_count(description.multiply_adds)} an image {description.uncounted}".rstrip(),
    ]
    return lines


def _layer(layer: LayerDescription, width: int, batch_size: int) -> str:
    multiply_adds = "unknown" if layer.multiply_adds is None else count(layer.multiply_adds)
    waste = layer.tile_waste(batch_size)
    line = (
        f"{layer.name:{width}}  {layer.kind:20} {' × '.join(map(str, layer.output_shape)):14} "
        f"{count(layer.parameters):>12} {multiply_adds:>15} {'' if waste is None else percent(waste):>15}"
    )
    return line.rstrip()


def _say_promotion(spec: PromoteSpec, result: PromoteResult, *, as_json: bool) -> None:
    """Print the verdict; exit with the code of the verdict."""
    if as_json:
        say_json({**result.model_dump(mode="json"), "verdict": result.verdict})
        click.get_current_context().exit(_EXIT_CODES[result.verdict])
    if spec.dry_run:
        headline, *reasons = result.lines()
        say([f"dry run: {headline}", *reasons])
        click.get_current_context().exit(_EXIT_CODES[result.verdict])
    # The stage's log lines have given the reasons.
    if result.verdict != "promoted":
        raise _ERRORS[result.verdict](result.headline)
    say([result.headline])


@stage_command(
    "promote",
    run_argument,
    click.option("--dry-run", is_flag=True, help="Only show the decision and its thresholds."),
    click.option("--anyway", is_flag=True, help="Ignore the rules; only a broken export is still refused."),
    _reason_option,
    assignments_option,
    group=models_group,
    say=_say_promotion,
)
def promote(
    request: Request, run: str, dry_run: bool, anyway: bool, reason: str, assignments: tuple[str, ...]
) -> PromoteSpec:
    """Make an evaluated run the champion of its recipe, if the rules show that it is not worse.

      podline models promote sample-0123456789ab --root podline-root
      podline models promote sample-0123456789ab --anyway --reason "new classes"
      podline models promote sample-0123456789ab --dry-run

    Each metric has two thresholds. The model is promoted if no metric is worse by more than its first threshold. It is
    refused if a metric is worse by more than its second threshold: the output lists these metrics, and the exit code is
    11. Otherwise it is undecided: the champion stays, the output names what is missing for a decision, and the exit
    code is 12. If two promotions run at the same time, one succeeds; the other changes nothing and exits with code 75.
    See docs/how-to/promote.md.
    """
    return _spec(request.store, run, assignments, anyway=anyway, reason=reason).changed(dry_run=dry_run)


@models_group.command("rollback")
@recipe_argument
@_reason_option
@in_store
def rollback(store: Store, recipe: str, reason: str, as_json: bool) -> None:
    """Make the previous champion the champion again; a second call restores the champion before that.

      podline models rollback sample --reason "slow on phones" --root podline-root

    The command deletes nothing; it adds an entry to the history. A later night does not promote the same run again.
    """
    entry = champions.roll_back(store, recipe, reason)
    again = f"{entry.run} is the champion of {recipe} again (number {entry.number})"
    answer(_document(store, recipe, entry), lambda: [again], as_json=as_json)


def _spec(store: Store, run: str, assignments: tuple[str, ...], *, anyway: bool, reason: str) -> PromoteSpec:
    training, evaluated = training_of(store, run), completion_of(store, run, EVALUATE.name)
    if evaluated is None:
        raise StoreError(f"{store.where(training.folder)} has no evaluation; run `podline evaluate {run}` first")
    return promotion_spec(
        training,
        train_result(store, run),
        result_in(store, training.folder, evaluated, EvaluateResult),
        rules=Choices(assignments=assignments).apply(training.recipe).promotion,
        anyway=anyway,
        reason=reason,
        again=True,
    )


def _line(store: Store, entry: Crowned) -> str:
    reason = f": {entry.reason}" if entry.reason else ""
    return f"{entry.run}  {_figure(store, entry.run):28} {entry.action} {moment(entry.time)}{reason}"


def _figure(store: Store, run: str) -> str:
    try:
        found = _metrics(store, run)
    except StoreError:  # deleted runs stay in the history
        return "run was deleted"
    measure = next((facts.measure for facts in all_facts() if facts.measure in found), None)
    return f"{measure_named(measure).label} {metric_text(measure, found[measure])}" if measure else ""


def _metrics(store: Store, run: str) -> dict[str, Metric]:
    record = completion_of(store, run, EVALUATE.name)
    if record is None:
        where = store.where(completion_name(f"runs/{run}", EVALUATE.name))
        raise ArtifactError(f"{where} is missing, although {run} was promoted; run `podline evaluate {run}`")
    return result_in(store, f"runs/{run}", record, EvaluateResult).metrics


def _document(store: Store, recipe: str, entry: Crowned) -> dict[str, Any]:
    """Return an entry of the history as JSON; ``model`` and ``metrics`` are null if the run was deleted."""
    try:
        metrics = {name: metric.model_dump() for name, metric in _metrics(store, entry.run).items()}
    except StoreError:
        metrics = None
    return {
        "recipe": recipe,
        **entry.model_dump(mode="json", exclude={"token"}),
        "model": store.where(f"runs/{entry.run}/model/model.keras") if metrics else None,
        "metrics": metrics,
    }


for _command in (model_use.predict, model_use.serve, model_use.export):
    models_group.add_command(_command)
