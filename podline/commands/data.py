"""``podline data``: shows data sets, checks the user's sources, and downloads or generates raw data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from podline.base import entry_points
from podline.base.errors import ArtifactError, SettingsError, SourceError
from podline.base.figures import count as number
from podline.base.figures import moment, size
from podline.base.plurals import plural
from podline.base.progress import Listener, Reporter, report_stage, report_work
from podline.commands import display, labels, pages
from podline.commands.options import (
    Number,
    Whole,
    absolute,
    answer,
    assignments_option,
    checked_first,
    command_line,
    dataset_argument,
    dataset_named,
    deep_option,
    fingerprint_option,
    in_store,
    json_option,
    load_settings,
    raise_damaged,
    recipe_argument,
    say,
    store_options,
)
from podline.commands.stage_command import stage_command
from podline.data.sources import download as downloading
from podline.data.versions.compaction import compact
from podline.data.versions.growth import CHANGES
from podline.data.versions.record_names import find_records
from podline.documents.manifest import Manifest
from podline.documents.manifest import dead_share as share_of_dead
from podline.documents.versions import Version, versions
from podline.ledger.inventory.catalogue import (
    Dataset,
    choose_dataset,
    dataset_for,
    datasets,
    manifest_of,
    remarks,
    training_of,
)
from podline.ledger.requests import Request
from podline.recipes import datasets as recipe_datasets
from podline.recipes import registry
from podline.stages.data_changes import DataChangesSpec
from podline.stages.from_recipe import fitted, validation_spec
from podline.stages.options import Choices, DataGroup, TrainingGroup
from podline.stages.specs import ValidateResult
from podline.stages.supervision.running import perform
from podline.stages.table import DATA_CHANGES, SHOW, VALIDATE
from podline.stages.tools import ShowSpec
from podline.store.contract import Store
from podline.store.opening import open_store

# A name, imported when needed: only this command decodes images.
_CHECK = "podline.data.check:check"


@click.group(cls=pages.Group)
def data() -> None:
    """Inspect data sets and sources, and get raw data."""


@data.command("list")
@click.argument("name", required=False, metavar="[NAME]")
@in_store
def _list(store: Store, name: str | None, as_json: bool) -> None:
    """List every data set of a store, newest first, or the versions of one data set, oldest first.

      podline data list --root podline-root
      podline data list images --root podline-root

    Next: `podline data show NAME`, or `podline train NAME`.
    """
    of_name, damaged = datasets(store, dataset_named(name) if name else None), list[ArtifactError]()
    manifests = {dataset: _manifest(store, dataset, damaged) for dataset in of_name}
    if name and (known := versions(store, dataset_named(name))):
        there = {dataset.fingerprint: manifest for dataset, manifest in manifests.items()}
        document = [version.model_dump(mode="json") for version in known]
        answer(document, lambda: _versions(known, there), as_json=as_json)
    else:
        found = [(dataset, manifest) for dataset, manifest in manifests.items() if manifest]
        document = [_document(store, dataset, manifest) for dataset, manifest in found]
        if found or as_json or not damaged:
            answer(document, lambda: _table(store, found, name or ""), as_json=as_json)
    raise_damaged(damaged)


def _manifest(store: Store, dataset: Dataset, damaged: list[ArtifactError]) -> Manifest | None:
    """Return the manifest of a data set; if it is damaged, append the error to ``damaged`` and return None."""
    try:
        return manifest_of(store, dataset)
    except ArtifactError as error:
        damaged.append(error)
        return None


def _versions(known: Sequence[Version], there: Mapping[str, Manifest | None]) -> list[str]:
    """Return a line for each version: number, fingerprint, records, share of dead records, changes."""
    lines = []
    for version in known:
        manifest = there.get(version.fingerprint)
        lost = "is damaged" if version.fingerprint in there else "was deleted"
        changes = {name: getattr(version, name) for name in CHANGES}
        text = ", ".join(f"{number(count)} {what}" for what, count in changes.items() if count) or "the same records"
        has = f"{_words(_splits(manifest))}, {share_of_dead(manifest):.1%} dead" if manifest else lost
        lines.append(f"@{version.number:<4} {version.fingerprint}  {has:44} {text}")
    return lines


def _table(store: Store, found: Sequence[tuple[Dataset, Manifest]], name: str) -> list[str]:
    if not found:
        return [f"{store.uri} has no data set{name and f' {name}'}; make one with `podline convert` or `podline run`"]
    widest = max(len(dataset.name) for dataset, _ in found)
    return [
        f"{dataset.name:{widest}} {dataset.fingerprint}  {_words(_splits(manifest)):32} "
        f"{size(manifest.bytes):>10}  {moment(dataset.published)}"
        for dataset, manifest in found
    ]


def _document(store: Store, dataset: Dataset, manifest: Manifest) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "folder": store.where(dataset.folder),
        "splits": _splits(manifest),
        "bytes": manifest.bytes,
        "quarantined": len(manifest.quarantined),
        "published": dataset.published,
    }


def _splits(manifest: Manifest) -> dict[str, int]:
    return {split.name: split.records for split in manifest.splits}


def _words(splits: dict[str, int]) -> str:
    return ", ".join(f"{number(records)} {name}" for name, records in splits.items())


@data.command("compact")
@dataset_argument
@fingerprint_option
@click.option(
    "--dead-share",
    type=Number(0, 1),
    default=0.3,
    show_default=True,
    help="Rewrite a version with older shards if at least this share of records is dead, or it has too many shards.",
)
@in_store
def _compact(store: Store, name: str, fingerprint: str | None, dead_share: float, as_json: bool) -> None:
    """Rewrite a version of your own images into few shards, without dead records.

      podline data compact images --root podline-root
      podline data compact images@7 --dead-share 0

    A record is dead if it is in a shard but no longer part of the data set. Next: `podline store prune`.
    """
    with display.shown() as listener, report_work("compact", listener) as reporter:
        dataset = choose_dataset(store, dataset_named(name), fingerprint, reporter)
        manifest = manifest_of(store, dataset)
        version = compact(store, manifest, dead_share, reporter)
    if version is None:
        found = share_of_dead(manifest)
        line = f"nothing to do: {found:.1%} of the records in the shards are dead, less than {dead_share:.1%}"
        if not manifest.base:
            line = "nothing to do: the version uses no shards of older versions"
        answer({"version": None, "dead_share": found}, lambda: [line], as_json=as_json)
        return
    answer(version, lambda: [f"{dataset.name}@{version.number} {version.fingerprint}"], as_json=as_json)


def _require_one_view(
    fingerprint: str | None, verify: bool, deep: bool, sheet: Path | None, record: str | None
) -> None:
    two = ".." in (fingerprint or "")
    if deep and not verify:
        raise SettingsError("got --deep without --verify, expected both; add --verify")
    if record and verify:
        raise SettingsError("got --record and --verify, expected one of the two")
    if two and (verify or record):
        flag = "--verify" if verify else "--record"
        raise SettingsError(f"got {flag} with two versions, expected one version; give NAME@3")
    if sheet and not two:
        raise SettingsError("got --sheet with one version, expected two versions; give NAME@2..3")


@data.command("show")
@dataset_argument
@fingerprint_option
@click.option("--verify", is_flag=True, help="Read every file and check its checksum, even if it was checked before.")
@deep_option
@click.option(
    "--sheet",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="For two versions: write a PNG file with added, removed and relabelled images.",
)
@click.option("--record", help="Only show this record: train[3], or its name in the source, such as cat/1.jpg.")
@checked_first(_require_one_view)
@in_store
def _show(
    store: Store,
    name: str,
    fingerprint: str | None,
    verify: bool,
    deep: bool,
    sheet: Path | None,
    record: str | None,
    as_json: bool,
) -> None:
    """Show a data set: splits, classes, fields, source files, omitted records, and whether it is the published one.

      podline data show cifar10 --root podline-root
      podline data show cifar10 --verify --deep
      podline data show images@2..3 --sheet changes.png
      podline data show images --record cat/1.jpg

    NAME is a data set or a recipe: coco_pose means the newest data set coco of `podline convert coco_pose`. --json
    alone prints the manifest. --verify lists each problem with its shard and record; problems give exit code 4.
    @2..3 shows the changes between two versions of your own images, and whether new images resemble old ones.
    """
    first, two, last = (fingerprint or "").partition("..")
    if two:
        ends = (first, f"@{last}" if first.startswith("@") else last)
        _changes(store, dataset_named(name), ends, sheet, as_json=as_json)
        return
    with display.shown() as listener:
        dataset = choose_dataset(store, dataset_named(name), fingerprint, Reporter("data", listener))
        verified = _verified(store, dataset, listener, deep=deep) if verify else None
    if verified:
        answer(verified, lambda: verified.lines(store.where), as_json=as_json)
    elif record:
        found = find_records(store, manifest_of(store, dataset), record)
        answer([each._asdict() for each in found], lambda: [each.words for each in found], as_json=as_json)
    else:
        manifest = manifest_of(store, dataset)
        answer(manifest, lambda: _described(store, dataset, manifest), as_json=as_json)


def _changes(store: Store, name: str, ends: tuple[str, str], sheet: Path | None, *, as_json: bool) -> None:
    with display.shown() as listener:
        reporter = Reporter(DATA_CHANGES.name, listener)
        before, after = (choose_dataset(store, name, each, reporter) for each in ends)
        out = absolute(str(sheet)) if sheet else ""
        spec = DataChangesSpec(
            root=store.uri, dataset=name, before=before.fingerprint, after=after.fingerprint, out=out
        )
        result = perform(spec, listener, load_settings({"root": store.uri}))
    answer(result, result.lines, as_json=as_json)


def _verified(store: Store, dataset: Dataset, listener: Listener, *, deep: bool) -> ValidateResult:
    spec = validation_spec(store, dataset.name, dataset.fingerprint, deep=deep)
    return report_stage(VALIDATE.name, listener, lambda: VALIDATE.run(spec, Reporter(VALIDATE.name, listener)))


def _described(store: Store, dataset: Dataset, manifest: Manifest) -> list[str]:
    return [
        (
            f"{dataset.name} {dataset.fingerprint}, {manifest.kind}, {size(manifest.bytes)}, "
            f"published {moment(dataset.published)}"
        ),
        f"{store.where(dataset.folder)}",
        f"read {manifest.read:,} = written {manifest.written:,} + quarantined {len(manifest.quarantined):,}",
        *remarks(store, dataset.folder, manifest),
        "",
        *(
            f"split {split.name}: {plural(split.records, 'example')} in {plural(len(split.every_shard), 'shard')}, "
            f"mean {_channels(split.mean)}, deviation {_channels(split.std)}"
            for split in manifest.splits
        ),
        "",
        *_class_table(manifest),
        *(
            f"field {field.name}: {field.dtype} {list(field.shape) or 'scalar'}, at byte {field.offset} of "
            f"{manifest.record_length}{', as an image file' if field.encoding == 'file' else ''}"
            for field in manifest.fields
        ),
        *(f"source {file.name}: {size(file.bytes)}, sha256 {file.sha256[:12]}…" for file in manifest.source),
        *(f"counted {rule}: {number(times)}" for rule, times in manifest.counted.items()),
        *(f"omitted {left.split} {left.record}: {left.reason}" for left in manifest.quarantined[:10]),
    ]


def _class_table(manifest: Manifest) -> list[str]:
    """Return a table with the number of records of each class, and a blank line; empty for a kind without classes."""
    if not manifest.class_names:
        return []
    head = f"{'class':14}" + "".join(f"{split.name:>10}" for split in manifest.splits)
    counts = zip(manifest.class_names, *(split.class_counts for split in manifest.splits), strict=True)
    return [head, *(f"{name:14}" + "".join(f"{number(count):>10}" for count in each) for name, *each in counts), ""]


def _channels(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


@data.command("check")
@click.argument("source", metavar="SOURCE")
@click.option("--sheet", type=click.Path(path_type=Path), metavar="FILE", help="Write a PNG file with examples.")
@click.option(
    "--near-duplicates",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a PNG file with test images and their near-duplicates in the training split.",
)
@command_line(DataGroup, "name", "layout", "allow_left_out")
@assignments_option
@store_options
@json_option
def _check(
    source: str,
    sheet: Path | None,
    near_duplicates: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Preview `podline convert images`: layout, classes, sizes, splits, omitted images.

      podline data check photos --sheet examples.png --near-duplicates pairs.png
      podline data check photos/labels.csv --set conversion.label_column=species
      podline data check mice

    The last example is a source of keypoints; the output lists joints, splits and the reasons for omissions.

    The command decodes every image into the store's cache, so a later conversion with the same settings decodes none.
    It writes nothing else. It applies the data set's reviews and forgotten images, as a conversion does. It ends with
    an error where a run would.

    Next: `podline run images --source SOURCE`.
    """
    place = absolute(source)
    if "://" not in place and not Path(place).exists():
        raise SourceError(f"{place} does not exist; give an existing folder or file")
    store, given = open_store(load_settings(options).root), DataGroup(**options)
    changes = given.changes() | Choices(assignments=assignments).changes()
    recipe, people = (registry.for_data(registry.get(each), given.name, place) for each in ("images", "keypoints"))
    with display.shown() as listener, report_work("check", listener):
        checked = entry_points.load(_CHECK)(place, recipe, people, changes, store, given.allow_left_out)
    drawn = []
    if sheet is not None:
        checked.write_sheet(sheet)
        drawn.append(str(sheet))
    if near_duplicates is not None:
        written = checked.write_pairs(near_duplicates)
        drawn.append(str(near_duplicates) if written else f"no near-duplicates; {near_duplicates} is not written")
    answer(checked.document(), lambda: checked.lines() + drawn, as_json=as_json)
    checked.refuse(store)


@stage_command(
    "preview",
    recipe_argument,
    click.option("--run", help="A finished run of the recipe, to show its predictions and mistakes too."),
    click.option(
        "--out",
        type=click.Path(path_type=Path),
        help="The PNG file to write.  [default: sheets/RUN.png with --run, else sheets/RECIPE.png; in the store, or in "
        "the cache of a bucket]",
    ),
    click.option(
        "--pictures", type=Whole(1, 20), default=8, show_default=True, help="The number of examples (columns)."
    ),
    click.option("--draws", type=Whole(1, 20), default=4, show_default=True, help="The number of epochs (rows)."),
    command_line(TrainingGroup, "batch_size", "seed", "assignments"),
    fingerprint_option,
    group=data,
)
def _preview(
    request: Request,
    run: str | None,
    out: Path | None,
    pictures: int,
    draws: int,
    fingerprint: str | None,
    **options: Any,
) -> ShowSpec:
    """Write a picture of training examples before and after augmentation.

    Each column shows an example of the first batch, and below it the augmented image of each of the first epochs. --run
    adds the run's predictions for test examples, and its most confident mistakes.

      podline data preview cifar10 --root podline-root
      podline data preview cifar10 --set augmentation.cutout=16 --out cutout.png
      podline data preview mnist --run mnist-0123456789ab --out mistakes.png

    The command writes only the PNG. `podline runs list` shows the runs.
    """
    store, chosen = request.store, request.recipe
    if run is not None:
        if fingerprint:
            raise SettingsError("got --run and a version of the data, expected one of the two: a run has its data")
        training = training_of(store, run, chosen)
        chosen, fingerprint = training.recipe, training.fingerprint
    target = out or store.beside / "sheets" / f"{run or chosen.name}.png"
    chosen = Choices(**options).apply(chosen)
    found = dataset_for(store, chosen, fingerprint, request.reporter(SHOW))
    return ShowSpec(
        root=store.uri,
        recipe=fitted(store, chosen, found.folder),
        fingerprint=found.fingerprint,
        run=run or "",
        out=str(target.expanduser().absolute()),
        examples=pictures,
        epochs=draws,
    )


@data.command("download")
@click.argument("name", metavar="NAME")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--base-url", help="The URL of a mirror, instead of the publisher's.")
@json_option
def _download(name: str, folder: Path, base_url: str | None, as_json: bool) -> None:
    """Download the official files of cifar10, cifar100 or mnist, and verify their md5.

      podline data download cifar10 cifar-10

    An interrupted download resumes.
    Next: `podline run cifar10 --source cifar-10 --root podline-root`.
    """
    with display.shown() as listener, report_work("download", listener) as reporter:
        place = downloading.download(name, folder, reporter, base_url)  # type: ignore[arg-type]
    answer({"name": name, "folder": str(place.absolute())}, lambda: [str(place)], as_json=as_json)


@data.command("draw")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--dataset",
    default="sample",
    show_default=True,
    help="sample: shapes in CIFAR-10's layout; coco_sample: stick people in COCO's layout.",
)
@click.option(
    "--train", type=Whole(1, 10_000_000), help="Number of training images.  [default: 5000 shapes, 600 of people]"
)
@click.option("--test", type=Whole(1, 10_000_000), help="Number of test images.  [default: 1000 shapes, 100 of people]")
@click.option("--seed", type=Whole(0, 2**32 - 1), default=0, show_default=True, help="The seed of the generator.")
def _draw(folder: Path, dataset: str, train: int | None, test: int | None, seed: int) -> None:
    """Generate a small synthetic data set, without a download.

    The images are ten classes of shapes and textures in CIFAR-10's exact layout, or stick people in COCO's. The people
    come with crowds and the defects of real data: a truncated file, a missing file, an annotation without an image.

      podline data draw drawn
      podline data draw people --dataset coco_sample

    Next: `podline run sample --source drawn`, or `podline convert coco_sample --source people`. Without --source,
    `podline run sample` generates the data set itself.
    """
    found = recipe_datasets.find(dataset)
    if not found.draw:
        there = ", ".join(name for name in recipe_datasets.names() if recipe_datasets.find(name).draw)
        raise SettingsError(f"got --dataset {dataset}, expected a synthetic data set: {there}")
    counts = {name: count for name, count in (("train", train), ("test", test)) if count is not None}
    say([str(found.code(found.draw)(folder, **counts, seed=seed))])


for _command in (labels.suspects, labels.review, labels.apply, labels.correct, labels.forget):
    data.add_command(_command)
