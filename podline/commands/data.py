"""``podline data``: the data sets of a store, and where raw ones come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from podline import entry_points
from podline.commands import display, pages
from podline.commands.options import (
    absolute,
    assignments_option,
    dataset_named,
    deep_option,
    existing_store,
    in_order,
    json_option,
    layout_option,
    load_settings,
    say,
    say_json,
    store_options,
)
from podline.data.sources import download as downloading
from podline.documents.manifest import Manifest
from podline.errors import SettingsError, SourceError
from podline.figures import count as number
from podline.figures import moment, size
from podline.inventory.catalogue import Dataset, choose_dataset, conversion_of, datasets, manifest_of, remarks
from podline.options import Choices, DataGroup
from podline.plurals import plural
from podline.progress import Listener, Reporter
from podline.recipes import registry
from podline.stages.completed import manifest_sha256
from podline.stages.specs import ValidateSpec
from podline.stages.table import VALIDATE
from podline.store.contract import Store
from podline.store.opening import open_store

# By name: it decodes images, which no other of these commands does.
_CHECK = "podline.reporting.image_check:check"
_CHECK_KEYPOINTS = "podline.reporting.keypoint_check:check_keypoints"
_name = click.argument("name", metavar="NAME")
_fingerprint = click.option("--fingerprint", help="Which one, by the start of its fingerprint.  [default: the newest]")
_which = in_order(_name, _fingerprint, store_options)


@click.group(cls=pages.Group)
def data() -> None:
    """Data sets: those of a store, and where raw ones come from."""


def _bytes(manifest: Manifest) -> int:
    return sum(shard.bytes for shard in manifest.shards)


def _splits(manifest: Manifest) -> dict[str, int]:
    return {split.name: split.records for split in manifest.splits}


def _words(splits: dict[str, int]) -> str:
    return ", ".join(f"{number(records)} {name}" for name, records in splits.items())


@data.command("list")
@store_options
@json_option
def _list(as_json: bool, **options: Any) -> None:
    """Every data set of a store, the newest first.

      podline data list --root podline-root

    Next: `podline data show NAME`, or `podline train NAME`.
    """
    store = existing_store(options)
    found = [(dataset, manifest_of(store, dataset)) for dataset in datasets(store)]
    if as_json:
        say_json([_document(store, dataset, manifest) for dataset, manifest in found])
    elif not found:
        say([f"{store.uri} has no data sets; make one with `podline convert` or `podline run`"])
    else:
        widest = max(len(dataset.name) for dataset, _ in found)
        say(
            [
                f"{dataset.name:{widest}} {dataset.fingerprint}  {_words(_splits(manifest)):32} "
                f"{size(_bytes(manifest)):>10}  {moment(dataset.published)}"
                for dataset, manifest in found
            ]
        )


def _document(store: Store, dataset: Dataset, manifest: Manifest) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "folder": store.where(dataset.folder),
        "splits": _splits(manifest),
        "bytes": _bytes(manifest),
        "quarantined": len(manifest.quarantined),
        "published": dataset.published,
    }


def _open(name: str, fingerprint: str | None, listener: Listener, options: dict[str, Any]) -> tuple[Store, Dataset]:
    store = existing_store(options)
    return store, choose_dataset(store, dataset_named(name), fingerprint, Reporter("data", listener))


@data.command("show")
@_which
@json_option
def _show(name: str, fingerprint: str | None, as_json: bool, **options: Any) -> None:
    """What a data set is: the published one or not, its splits, classes, fields, sources, what was left out.

      podline data show cifar10 --root podline-root

    NAME is a data set's, or a recipe's: coco_pose is the newest data set coco, as `podline convert coco_pose` makes it.
    With --json it is the manifest itself.
    """
    with display.shown() as listener:
        store, dataset = _open(name, fingerprint, listener, options)
    manifest, conversion = manifest_of(store, dataset), conversion_of(store, dataset.folder)
    if as_json:
        say_json(manifest.model_dump(mode="json"))
        return
    say(
        [
            f"{dataset.name} {dataset.fingerprint}, {size(_bytes(manifest))}, published {moment(dataset.published)}",
            f"{store.where(dataset.folder)}",
            f"read {manifest.read:,} = written {manifest.written:,} + quarantined {len(manifest.quarantined):,}",
            *remarks(manifest, conversion),
            "",
            *(
                f"split {split.name}: {plural(split.records, 'example')} in {plural(len(split.shards), 'shard')}, "
                f"mean {_channels(split.mean)}, deviation {_channels(split.std)}"
                for split in manifest.splits
            ),
            "",
            f"{'class':14}" + "".join(f"{split.name:>10}" for split in manifest.splits),
            *(
                f"{class_name:14}" + "".join(f"{number(split.class_counts[label]):>10}" for split in manifest.splits)
                for label, class_name in enumerate(manifest.class_names)
            ),
            "",
            *(
                f"field {field.name}: {field.dtype} {list(field.shape) or 'scalar'}, at byte {field.offset} of "
                f"{manifest.record_length}{', as an image file' if field.encoding == 'file' else ''}"
                for field in manifest.fields
            ),
            *(f"source {file.name}: {size(file.bytes)}, sha256 {file.sha256[:12]}…" for file in manifest.source),
            *(f"counted {rule}: {number(times)}" for rule, times in manifest.counted.items()),
            *(f"left out {left.split} {left.record}: {left.reason}" for left in manifest.quarantined[:10]),
        ]
    )


def _channels(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


@data.command("verify")
@_which
@deep_option
@json_option
def _verify(name: str, fingerprint: str | None, deep: bool, as_json: bool, **options: Any) -> None:
    """Reads every byte of a data set and checks it against its manifest, also where that was done before.

      podline data verify cifar10 --root podline-root
      podline data verify cifar10 --deep

    What is wrong is named, record and shard, and ends with exit code 4.
    """
    with display.shown() as listener:
        store, dataset = _open(name, fingerprint, listener, options)
        spec = ValidateSpec(
            root=store.uri,
            dataset=manifest_of(store, dataset).dataset,  # type: ignore[arg-type]  (pydantic checks it)
            fingerprint=dataset.fingerprint,
            manifest_sha256=manifest_sha256(store, dataset.folder),
            deep=deep,
        )
        listener({"event": "start", "stage": VALIDATE.name})
        result = VALIDATE.run(spec, Reporter(VALIDATE.name, listener))
        listener({"event": "result", "stage": VALIDATE.name, "result": result.model_dump(mode="json")})
    if as_json:
        say_json(result.model_dump(mode="json"))
    else:
        say(result.lines(store.where))


@data.command("count")
@_which
@json_option
def _count(name: str, fingerprint: str | None, as_json: bool, **options: Any) -> None:
    """How many examples a data set has.

      podline data count cifar10 --root podline-root

    The manifest, which is written last and counts every record, says so.
    """
    with display.shown() as listener:
        store, dataset = _open(name, fingerprint, listener, options)
        splits = _splits(manifest_of(store, dataset))
    total = sum(splits.values())
    if as_json:
        found = {"name": dataset.name, "fingerprint": dataset.fingerprint, "splits": splits}
        say_json({**found, "total": total})
    else:
        say([f"{plural(total, 'example')}: {_words(splits)}"])


@data.command("check")
@click.argument("source", metavar="SOURCE")
@click.option("--sheet", type=click.Path(path_type=Path), metavar="FILE", help="Where a PNG with examples goes.")
@click.option(
    "--near-duplicates",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where a PNG goes with test images beside the training images that they nearly repeat.",
)
@layout_option
@assignments_option
@store_options
@json_option
def _check(
    source: str,
    sheet: Path | None,
    near_duplicates: Path | None,
    layout: str | None,
    assignments: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """What `podline convert images` would make of a source: layout, classes, sizes, splits, what is left out and why.

      podline data check photos --sheet examples.png --near-duplicates pairs.png
      podline data check photos/labels.csv --set conversion.label_column=species
      podline data check mice

    The last is a source of keypoints: what is said is the joints, the splits, and what is left out and why.

    Every image is decoded, as for the conversion, and kept in the store's cache; a conversion with the same settings
    after it decodes none again. Nothing else is written. Next: `podline run images --source SOURCE`.
    """
    store = open_store(load_settings(options).root)
    changes = DataGroup(layout=layout or "").changes() | Choices(assignments=assignments).changes()
    recipe = registry.override(registry.get("images"), changes)
    with display.shown() as listener:
        listener({"event": "start", "stage": "check"})
        try:
            checked = entry_points.load(_CHECK)(absolute(source), recipe, store)
        except SourceError:
            checked = entry_points.load(_CHECK_KEYPOINTS)(absolute(source), store)
            if checked is None:
                raise
        listener({"event": "result", "stage": "check", "result": {}})
    if not hasattr(checked, "write_sheet"):
        if sheet is not None or near_duplicates is not None:
            raise SettingsError(f"{source} holds keypoints, of which no sheet is drawn; leave the option out")
        say_json(checked.document()) if as_json else say(checked.lines())
        return
    drawn = []
    if sheet is not None:
        checked.write_sheet(sheet)
        drawn.append(str(sheet))
    if near_duplicates is not None:
        written = checked.write_pairs(near_duplicates)
        drawn.append(str(near_duplicates) if written else f"no near-duplicates; {near_duplicates} is not written")
    if as_json:
        say_json(checked.document())
    else:
        say(checked.lines() + drawn)
    checked.source.looked_at()


@data.command("download")
@click.argument("name", metavar="NAME")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--base-url", help="A mirror's address, in place of the publisher's.")
@json_option
def _download(name: str, folder: Path, base_url: str | None, as_json: bool) -> None:
    """Fetches the official archive of cifar10, cifar100 or mnist; goes on where it was broken off, checks md5.

      podline data download cifar10 cifar-10

    Next: `podline run cifar10 --source cifar-10 --root podline-root`.
    """
    with display.shown() as listener:
        listener({"event": "start", "stage": "download"})
        place = downloading.download(name, folder, Reporter("download", listener), base_url)  # type: ignore[arg-type]
        listener({"event": "result", "stage": "download", "result": {}})
    if as_json:
        say_json({"name": name, "folder": str(place.absolute())})
    else:
        say([f"{place}"])
