"""Builds each stage's spec from a recipe and the results of earlier stages, for commands and flows."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from podline.base import entry_points
from podline.base.errors import SettingsError, SourceError
from podline.base.frozen import JsonObject
from podline.base.plurals import plural
from podline.documents import champions
from podline.documents.completion import completion_name
from podline.documents.manifest import TEST, TRAINING, Manifest, dataset_folder, manifest_digest, read_manifest
from podline.documents.promotion import PROMOTION
from podline.documents.reading import read_model
from podline.documents.versions import FirstImages, first_images
from podline.recipes import datasets, measures, own_code
from podline.recipes.datasets import ConverterSettings
from podline.recipes.durations import Duration
from podline.recipes.kind_table import facts_named
from podline.recipes.own_code import with_code
from podline.recipes.promotion_settings import RULES
from podline.recipes.published_weights import PUBLISHED, Pretrained
from podline.recipes.registry import for_few_images, override
from podline.recipes.settings import CHAMPION, InitSettings, Recipe
from podline.recipes.targets import Doubt
from podline.recipes.validation import with_rarer_evaluations, with_validation
from podline.settings.strategies import StrategyName
from podline.stages.base import JUDGED
from podline.stages.completed import manifest_sha256
from podline.stages.specs import (
    SPEC,
    EvaluateResult,
    EvaluateSpec,
    PromoteSpec,
    ReportSpec,
    TrainResult,
    TrainSpec,
    ValidateSpec,
)
from podline.stages.table import installed
from podline.stages.tools import Pace, PaceSpec
from podline.store import digests
from podline.store.contract import Store

# The recipe's values for few images that a log line shows.
_LOGGED = ("model.kind", "model.weights", "conversion.side", "task.model.trunk", "task.side")
Tell = Callable[[str], object]


def _discard(_message: str) -> None:
    pass


def converter_settings(dataset: str, recipe: Recipe | None, given: JsonObject) -> ConverterSettings:
    """Return the settings of a data set's conversion.

    Args:
        dataset: name of the data set.
        recipe: the recipe whose conversion settings are the defaults, or None.
        given: settings by name.

    Raises:
        SettingsError: the data set does not exist, a setting is unknown, or its value is invalid.
    """
    defaults = {**recipe.task.conversion(), **recipe.conversion} if recipe else {}
    return datasets.find(dataset).settings_of(defaults | given)


def validation_spec(store: Store, dataset: str, fingerprint: str, *, deep: bool = False) -> ValidateSpec:
    """Return the spec for validating a data set in its present state.

    Raises:
        StoreError: the data set does not exist.
    """
    manifest = manifest_sha256(store, dataset_folder(dataset, fingerprint))
    return ValidateSpec(root=store.uri, dataset=dataset, fingerprint=fingerprint, manifest_sha256=manifest, deep=deep)


def training_spec(
    store: Store, recipe: Recipe, fingerprint: str, strategy: StrategyName, tell: Tell = _discard
) -> TrainSpec:
    """Return the spec for training a recipe on a data set in its present state.

    Args:
        store: the store.
        recipe: the recipe to train; see :func:`fitted`.
        fingerprint: fingerprint of the data set.
        strategy: the distribution strategy.
        tell: called with each log line about values that depend on the data set, and about a weak test split.

    Raises:
        StoreError: the data set does not exist.
        ArtifactError: the data set's manifest has changed.
        SettingsError: the recipe's weights cannot be read; its schedule or early stop needs held-out examples, but
            there are none; or its champion cannot be trained further.
        SourceError: no result on the test split could be better than guessing.
    """
    folder = dataset_folder(recipe.dataset, fingerprint)
    recipe = fitted(store, recipe, folder, tell)
    require_weights(store, recipe)
    manifest = read_manifest(store, folder)
    try:
        recipe.held_out_share(manifest)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    if doubt := doubt_about(recipe, manifest):
        if doubt.certain:
            raise SourceError(doubt.words)
        tell(doubt.words)
    spec = TrainSpec(
        root=store.uri,
        recipe=with_code(with_checksum(recipe)),
        fingerprint=fingerprint,
        manifest_digest=manifest_digest(store, folder),
        strategy=strategy,
    )
    if spec.recipe.further != CHAMPION:
        return spec
    run = champions.beginning(store, recipe.name, spec.digest(), lambda: champion_run(store, recipe, folder))
    tell(f"further from the champion, {run}" if run else f"from scratch: {recipe.name} has no champion yet")
    begun = with_checksum(spec.recipe.changed(further=run or None))
    return spec.model_copy(update={"recipe": begun, "lacked_champion": not run})


def doubt_about(recipe: Recipe, manifest: Manifest) -> Doubt | None:
    """Return why no model can be shown better than guessing on a data set's test split, or None."""
    counts = {split.name: split.class_counts for split in manifest.splits}
    if not any(counts.get(TEST, ())):
        return None
    every = [sum(each) for each in zip(*counts.values(), strict=True)]
    hashed = "test_share" in manifest.converter
    return facts_named(recipe.kind).targets.doubt(manifest.class_names, counts[TEST], every, is_hashed=hashed)


def champion_run(store: Store, recipe: Recipe, folder: str) -> str:
    """Return the run of a recipe's champion, if it can be trained further; empty without a champion.

    Args:
        store: the store.
        recipe: the recipe of the champion.
        folder: folder of the data set for the further training.

    Raises:
        SettingsError: the champion's data set, network, image shape or classes differ from those of this training.
        StoreError: the champion's run or data set is missing.
    """
    champion = champions.champion(store, recipe.name)
    if champion is None:
        return ""
    then = read_model(store, f"runs/{champion.run}/{SPEC}", TrainSpec, "a training spec", "promote another run")
    was, now = read_manifest(store, then.dataset_folder), read_manifest(store, folder)
    classes, model = [set(each.class_names) for each in (was, now)], dict(recipe.model)
    compared = {
        "the data sets": (then.recipe.dataset, recipe.dataset),
        **{f"values of model.{name}": (value, model[name]) for name, value in then.recipe.model if name != "weights"},
        "the image shapes": (was.image_shape, now.image_shape),
        "the classes that only one has": (sorted(classes[0] - classes[1]), sorted(classes[1] - classes[0])),
    }
    for what, (theirs, ours) in compared.items():
        if theirs != ours:
            raise SettingsError(
                f"further=champion: {what} differ: {theirs} (champion {champion.run}) vs {ours} (this training); train "
                "once without further, and promote that run"
            )
    return champion.run


def within(
    minutes: float, training: TrainSpec, store: Store, measure: Callable[[PaceSpec], Pace], tell: Tell
) -> TrainSpec:
    """Return the spec with the duration that takes about ``minutes``.

    Args:
        minutes: the minutes; 0 returns the spec unchanged.
        training: the spec with the recipe's own duration.
        store: the store that holds the result of the stage ``pace``.
        measure: runs the stage ``pace``, or returns its earlier result.
        tell: called with a log line: the duration, and how to measure again.
    """
    if not minutes:
        return training
    pace, recipe = measure(pace_spec(training, minutes)), training.recipe
    when = "measured before" if pace.reused else "measured now, and kept"
    tell(
        f"{minutes:g} minutes: {pace.duration}, in place of {recipe.duration}, {when}; if other programs slowed the "
        f"measurement, delete {store.where(pace.folder)} to measure again"
    )
    return training.model_copy(update={"recipe": recipe.changed(duration=pace.duration)})


def pace_spec(training: TrainSpec, minutes: float) -> PaceSpec:
    """Return the spec of the stage ``pace``, which measures the duration that takes about ``minutes``."""
    return PaceSpec.model_validate({**training.model_dump(exclude={"preflight"}), "minutes": minutes})


def settled(store: Store, recipe: Recipe) -> Recipe:
    """Return the recipe with an empty ``few``, after applying its entry that fits the first images, if any."""
    if not recipe.few:
        return recipe
    return for_first_images(recipe, first_images(store, recipe.dataset))


def for_first_images(recipe: Recipe, found: FirstImages | None) -> Recipe:
    """Return the recipe with its values for few images.

    Args:
        recipe: any recipe; its ``few`` defines the choices.
        found: number and side of the images at the first conversion; None chooses no values for few images.
    """
    own = recipe.changed(few=())
    chosen = for_few_images(recipe, found.images, found.side) if found else None
    # `override` treats the values as the user's: it would change `fit` and, for another optimizer, the learning rate.
    kept = {"fit": dict(own)["fit"], "schedule.learning_rate": own.schedule.learning_rate}
    return override(own, {**kept, **chosen.changes}) if chosen else own


def few_in_words(recipe: Recipe, images: int, side: int) -> str:
    """Return as text the main values that a recipe has for a number of training images; empty if it has none."""
    chosen = for_few_images(recipe, images, side)
    logged = {path: chosen.changes.get(path) for path in _LOGGED} if chosen else {}
    return ", ".join(f"{path}={value}" for path, value in logged.items() if value is not None)


def fitted(store: Store, recipe: Recipe, folder: str, tell: Tell = _discard) -> Recipe:
    """Return the recipe with the values that depend on the number of training images.

    Args:
        store: the store.
        recipe: any recipe; its ``few`` and ``fit`` define the choices.
        folder: folder of the data set.
        tell: called with a log line about each choice.
    """
    if recipe.few:
        _tell_growth(store, recipe, read_manifest(store, folder).split(TRAINING).records, tell)
    recipe = settled(store, recipe)
    fit = recipe.fit
    if fit is None:
        return recipe
    manifest = read_manifest(store, folder)
    recipe = with_validation(recipe, manifest, tell)
    records = manifest.split(TRAINING).records
    images = records - (0 if manifest.has_validation else round(recipe.validation_share * records))
    batch_size = min(recipe.batch_size, images, max(fit.least_batch, images // fit.epoch_steps))
    found = recipe.changed(fit=None, batch_size=max(1, batch_size))
    if fit.rate:
        rate = recipe.schedule.learning_rate * found.batch_size / recipe.batch_size
        found = found.changed(schedule=found.schedule.changed(learning_rate=float(f"{rate:.6g}")))
    epochs, least = recipe.duration.epochs, math.ceil(fit.steps / max(images // found.batch_size, 1))
    if epochs and epochs < least:
        found = found.changed(duration=Duration(epochs=least))
    _tell_fitted(recipe, found, images, tell)
    return with_rarer_evaluations(found, manifest, fit.evaluation_time)


def _tell_growth(store: Store, recipe: Recipe, images: int, tell: Tell) -> None:
    """Log if the data set's size has changed so far that its first conversion would now choose other values."""
    first = first_images(store, recipe.dataset)
    if first is None:
        return
    then, now = (few_in_words(recipe, number, first.side) for number in (first.images, images))
    if then != now:
        tell(
            f"{recipe.dataset} had {plural(first.images, 'training image')} at its first conversion and has "
            f"{images:,} now; for these, {now or 'the recipe without its values for few images'} would be chosen; "
            "convert the data under another --name to choose again"
        )


def _tell_fitted(recipe: Recipe, found: Recipe, images: int, tell: Tell) -> None:
    changes: list[str] = []
    if found.batch_size != recipe.batch_size:
        changes.append(f"batches of {found.batch_size} in place of {recipe.batch_size}")
    if found.schedule != recipe.schedule:
        rates = found.schedule.learning_rate, recipe.schedule.learning_rate
        changes.append("a learning rate of {:g} in place of {:g}".format(*rates))
    if found.duration != recipe.duration:
        changes.append(f"{found.duration} in place of {recipe.duration}")
    if changes:
        tell(f"for enough steps with {plural(images, 'training image')}: {', '.join(changes)}")


def evaluation_spec(training: TrainSpec, trained: TrainResult, split: str = JUDGED) -> EvaluateSpec:
    """Return the spec for evaluating a run on a split of its data set."""
    return EvaluateSpec(
        root=training.root,
        run=trained.run,
        dataset=training.recipe.dataset,
        fingerprint=training.fingerprint,
        manifest_digest=training.manifest_digest,
        weights_sha256=trained.weights_sha256,
        split=split,
        batch_size=training.recipe.evaluation_batch_size,
        judging=training.recipe.task.judged(),
        measures=_code_of(measures.ENTRY_POINTS) if facts_named(training.recipe.kind).own_measures else {},
        strategy=training.strategy,
    )


def promotion_spec(training: TrainSpec, trained: TrainResult, evaluated: EvaluateResult, **values: Any) -> PromoteSpec:
    """Return the spec for promoting an evaluated run, by its recipe's rules or those in ``values``."""
    values.setdefault("rules", training.recipe.promotion)
    return PromoteSpec(
        root=training.root,
        run=trained.run,
        dataset=training.recipe.dataset,
        fingerprint=training.fingerprint,
        recipe=training.recipe.name,
        weights_sha256=trained.weights_sha256,
        evaluation_sha256=evaluated.evaluation_sha256,
        code=_code_of(RULES),
        **values,
    )


def report_spec(store: Store, evaluation: EvaluateSpec, evaluation_sha256: str, command: str) -> ReportSpec:
    """Return the spec for the report on an evaluation; for the test split, with the promotion's decision, if any.

    Args:
        store: the store.
        evaluation: the spec of the evaluation.
        evaluation_sha256: checksum of the evaluation's document.
        command: the command line that repeats the run.
    """
    # A decision belongs to the split that runs are evaluated on.
    decision = f"{evaluation.folder}/{PROMOTION}"
    decided = evaluation.split == JUDGED and store.exists(decision)
    shown = [name for name, stage in installed().items() if stage.section]
    records = {name: completion_name(evaluation.record_folder, name) for name in shown}
    return ReportSpec(
        root=store.uri,
        run=evaluation.run,
        dataset=evaluation.dataset,
        fingerprint=evaluation.fingerprint,
        split=evaluation.split,
        evaluation_sha256=evaluation_sha256,
        promotion_sha256=store.sha256(decision) if decided else "",
        command=command,
        sections={name: store.sha256(record) for name, record in records.items() if store.exists(record)},
        installed=_code_of(entry_points.SECTIONS),
    )


def with_checksum(recipe: Recipe) -> Recipe:
    """Return the recipe with the file and the checksum of its initial weights in ``init``; None without weights.

    Raises:
        SettingsError: the file cannot be read, or no weights are published for the model.
    """
    init = recipe.init
    if init is None or init.published:
        return recipe.model_copy(update={"init": None if recipe.further else _published(recipe.pretrained)})
    if init.checksum:
        return recipe
    file = Path(init.file).expanduser().absolute()
    return recipe.model_copy(update={"init": InitSettings(file=str(file), checksum=weights_sha256(file))})


def _published(network: Pretrained | None) -> InitSettings | None:
    if network is None:
        return None
    if network.kind not in PUBLISHED:
        raise SettingsError(
            f"{network.setting}: got model.kind={network.kind}, expected {' or '.join(PUBLISHED)}; give --init FILE"
        )
    found = PUBLISHED[network.kind]
    return InitSettings(file=found.file, checksum=found.checksum, published=found.source, licence=found.licence)


def require_weights(store: Store, recipe: Recipe) -> None:
    """Check that the recipe's published weights, if it needs any, are in the store or in an installed package.

    Raises:
        SettingsError: the weights are in neither; the message has both remedies.
    """
    begun = recipe.model_copy(update={"further": None}) if recipe.further == CHAMPION else recipe
    init, network = begun.init or with_checksum(begun).init, begun.pretrained
    if network is None or init is None or not init.published:
        return
    published = PUBLISHED[network.kind]
    if recipe.further and champions.champion(store, recipe.name):
        return
    if not store.exists(published.name):
        published.require_package(network.setting, network.instead)


def weights_sha256(file: Path) -> str:
    """Return the sha256 of a weights file.

    Raises:
        SettingsError: the file cannot be read.
    """
    try:
        return digests.of_file(file)
    except OSError as error:
        raise SettingsError(
            f"init={file} cannot be read: {error.strerror}; give a .keras, .weights.h5 or .npz file; "
            "docs/how-to/fine-tune.md shows how to convert other formats"
        ) from error


def _code_of(group: str) -> dict[str, str]:
    """Return the code digest of each entry point of a group, by name."""
    return {point.name: own_code.of_point(point) for point in entry_points.installed(group)}
