"""``podline data suspects``, ``review``, ``apply``, ``correct``, ``forget``: corrects labels, and removes images."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import click

from podline.base import entry_points
from podline.base.errors import ArtifactError, SettingsError
from podline.base.figures import size
from podline.base.plurals import first_few, plural
from podline.base.progress import report_work, silent
from podline.commands import display, pages
from podline.commands.options import (
    Number,
    Whole,
    answer,
    checked_first,
    command_line,
    dataset_named,
    deleting_in_store,
    fingerprint_option,
    in_store,
    recipe_argument,
    strategy_option,
)
from podline.commands.stage_command import stage_command
from podline.data.versions.record_names import find_records
from podline.documents.corrections import Correction, corrections, publish_review
from podline.documents.suspects import PAGE, newest_suspects
from podline.ledger.inventory.catalogue import choose_dataset, manifest_of
from podline.ledger.inventory.forgetting import forget as forget_image
from podline.ledger.requests import Request
from podline.recipes import datasets
from podline.search.suspects.folds import PARTS, PRECISION, fold_specs, suspects_spec
from podline.search.suspects.review import read_review, write_review
from podline.stages.options import Choices, Length, TrainingGroup
from podline.stages.suspects import SuspectsSpec
from podline.stages.table import SUSPECTS
from podline.store.contract import Store, explained

_NAMED = 10
# A name, imported when needed: it imports OpenCV.
_SEARCH = "podline.ledger.inventory.traces:search"


@stage_command(
    "suspects",
    recipe_argument,
    click.option(
        "--parts",
        type=Whole(2, 100),
        default=PARTS,
        show_default=True,
        help="The number of folds of the training split; one model trains for each fold, on the other folds.",
    ),
    click.option(
        "--precision",
        type=Number(0.01, 0.99),
        default=PRECISION,
        show_default=True,
        help="List as many suspects as possible with at least this expected share of wrong labels.",
    ),
    command_line(Length, "epochs"),
    command_line(TrainingGroup, "model", "steps", "batch_size", "learning_rate", "seed", "init", "assignments"),
    strategy_option,
    fingerprint_option,
)
def suspects(request: Request, parts: int, precision: float, fingerprint: str | None, **options: Any) -> SuspectsSpec:
    """Find labels that are probably wrong, by cross-validation, and estimate the share of wrong labels.

    The command trains the recipe several times, each time without one fold of the training split. Each model then
    checks the labels of the fold that it has not seen. Some labels are swapped on purpose, to measure how well the
    models find wrong labels. After an interruption, the same command continues.

      podline data suspects cifar10 --epochs 10
      podline data suspects images.flowers --parts 2 --precision 0.5

    Next: `podline data review NAME`. The command needs Podline's extra `suspects`.
    """
    entry_points.require_extra("suspects", "data suspects")
    reporter = request.reporter(SUSPECTS)
    trainings = fold_specs(
        request.store,
        Choices(**options).apply(request.recipe),
        reporter,
        fingerprint=fingerprint,
        parts=parts,
        strategy=request.settings.strategy,
    )
    return suspects_spec(request.store, trainings, request.train, reporter, precision)


@click.command("review", cls=pages.Command)
@click.argument("name", metavar="NAME")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default="review.csv",
    show_default=True,
    help="The table to write; a page with the pictures is written next to it.",
)
@in_store
def review(store: Store, name: str, out: Path, as_json: bool) -> None:
    """Write the suspects of the newest search as a table to fill in, and a page with their pictures.

      podline data review images.flowers --out review.csv

    Fill in the column decision: keep, relabel (to new_label) or drop. A row without a decision changes nothing. Images
    that were reviewed before are not listed again. Next: `podline data apply review.csv`.
    """
    folder, document = newest_suspects(store, dataset_named(name))
    reviewed = corrections(store, document.dataset)
    rows = write_review(document, (each for each in document.suspects if each.image not in reviewed), out)
    pictures = out.with_suffix(".html")
    with explained("write", pictures):
        pictures.write_bytes(store.read_bytes(f"{folder}/{PAGE}"))
    found = {"rows": rows, "table": str(out), "page": str(pictures)}
    answer(found, lambda: [f"{plural(rows, 'suspect')} in {out}, with pictures in {pictures}"], as_json=as_json)


@click.command("apply", cls=pages.Command)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE")
@click.option("--by", default="", help="The name of the reviewer.  [default: this user]")
@in_store
def apply(store: Store, file: Path, by: str, as_json: bool) -> None:
    """Apply a completed review: the next conversion of the data set uses it.

      podline data apply review.csv --by ann

    Reviews stay in the store. If two reviews contain the same image, the later review counts. The manifest counts
    relabelled images, and lists dropped images. Next: `podline run images --source SOURCE`.
    """
    filled = read_review(file)
    _require_own(filled.dataset)
    manifest = manifest_of(store, choose_dataset(store, filled.dataset, None, silent()))
    filled = read_review(file, manifest.class_names)
    if not filled.corrections:
        raise SettingsError(
            f"{file}: the column decision is empty in every row; fill in keep, relabel or drop in at least one"
        )
    name = publish_review(store, filled.dataset, by or _this_user(), filled.corrections)
    decisions = [each.decision for each in filled.corrections.values()]
    counts = {each: decisions.count(each) for each in dict.fromkeys(decisions)}
    text = ", ".join(f"{count:,} {decision}" for decision, count in counts.items())
    lines = [f"{text}; {plural(filled.undecided, 'row')} undecided", store.where(name)]
    answer({"review": name, **counts, "undecided": filled.undecided}, lambda: lines, as_json=as_json)


def _require_correction(label: str | None, drop: bool) -> None:
    if (label is None) == (not drop):
        raise SettingsError("got neither --label nor --drop, or both; give one of the two")


@click.command("correct", cls=pages.Command)
@click.argument("name", metavar="NAME")
@click.option(
    "--record", required=True, help="The image: its name in the source, or split and index, such as test[23]."
)
@click.option("--label", metavar="CLASS", help="The correct class.")
@click.option("--drop", is_flag=True, help="Omit the image.")
@click.option("--by", default="", help="The name of the reviewer.  [default: this user]")
@checked_first(_require_correction)
@in_store
def correct(store: Store, name: str, record: str, label: str | None, drop: bool, by: str, as_json: bool) -> None:
    """Correct the label of an image, or omit the image, from the next conversion of the data set on.

      podline data correct images.flowers --record cat/1.jpg --label dog
      podline data correct images.flowers --record "test[23]" --drop

    --record refers to the newest version; `podline data show NAME --record` shows the image. Like `podline data apply`,
    the command adds a review to the store. If two reviews contain the same image, the later review counts.
    """
    dataset = dataset_named(name)
    _require_own(dataset)
    manifest = manifest_of(store, choose_dataset(store, dataset, None, silent()))
    if label is not None and label not in manifest.class_names:
        known = first_few(manifest.class_names, _NAMED)
        raise SettingsError(f"got --label {label}, expected a class of {dataset}: {known}")
    found = find_records(store, manifest, record)
    decision = Correction(decision="drop") if drop else Correction(decision="relabel", label=label or "")
    review = publish_review(store, dataset, by or _this_user(), {each.image: decision for each in found})
    lines = [f"{each.words}: {'omitted' if drop else label} from the next conversion on" for each in found]
    answer({"review": review, "images": [each.image for each in found]}, lambda: lines, as_json=as_json)


def _this_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # OSError since Python 3.13
        raise SettingsError("this user has no name on this machine, as in some containers; give --by NAME") from error


def _require_own(dataset: str) -> None:
    if "corrections" not in type(datasets.settings_of(dataset, {})).model_fields:
        raise SettingsError(
            f"got a review of the published data set {dataset}, whose labels are fixed, expected a data set of your "
            "own images; convert the images with the recipe images, then review that data set"
        )


def _require_key_or_proof(key: str | None, reason: str | None, prove: Path | None, dry_run: bool) -> None:
    if prove is None and not (key and (reason or dry_run)):
        raise SettingsError("got neither --key nor --prove; give --key with --reason or --dry-run, or --prove")
    if prove and (key or reason or dry_run):
        raise SettingsError("got --prove with --key, --reason or --dry-run, expected --prove alone; forget first")


@click.command("forget", cls=pages.Command)
@click.argument("name", metavar="NAME")
@click.option("--key", help="The image: its path in the source, its identity, or a copy of the file on this machine.")
@click.option("--reason", help="The reason; conversions and manifests record it.")
@click.option(
    "--prove",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Delete nothing; search the store and this machine's caches for the bytes of the image in this file.",
)
@click.option(
    "--dry-run", is_flag=True, help="Delete nothing; list the files to delete, and the affected runs and champions."
)
@checked_first(_require_key_or_proof)
@deleting_in_store
def forget(
    store: Store, name: str, key: str | None, reason: str | None, prove: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Forget one of your own images: delete it from shards, caches and pages, and omit it from later conversions.

      podline data forget images.flowers --key cat/1.jpg --reason "asked by its owner" --root podline-root
      podline data forget images.flowers --prove 1.jpg

    If the newest version has the image, the command writes a version without it. It deletes the versions with the
    image, this machine's cached sources, pages of the data set's runs and suspects, and the pictures in sheets. It
    keeps models, and lists models that may have learned from the image. After an interruption, the same command
    continues. Delete the outputs of `data review`, `--sheet` and `models predict` yourself. --prove exits with code 4
    if it finds the image.
    """
    dataset = dataset_named(name)
    with display.shown() as listener, report_work("forget", listener) as reporter:
        traces: Any = entry_points.load(_SEARCH)(store, dataset, prove, reporter) if prove else None
        result = None
        if not prove:
            result = forget_image(store, dataset, str(key), reason or "", reporter, dry_run=dry_run)
    if result is not None:
        answer(result, result.lines, as_json=as_json)
        return
    searched = f"searched {plural(traces.objects, 'object')}, {size(traces.bytes)}"
    lines = [*traces.found, f"{searched}: {plural(len(traces.found), 'copy', 'copies')} of {prove}"]
    answer(traces._asdict(), lambda: lines, as_json=as_json)
    if traces.found:
        raise ArtifactError(
            f"{store.uri} still contains {prove}, for example {traces.found[0]}; forget the image with --key"
        )
