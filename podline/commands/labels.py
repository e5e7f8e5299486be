"""``podline data suspects``, ``review``, ``apply`` and ``correct``: find doubtful labels, and correct them."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import click

from podline.base.entry_points import require_extra
from podline.base.errors import SettingsError
from podline.base.plurals import first_few, plural
from podline.base.progress import silent
from podline.commands import pages
from podline.commands.numbers import Number, Whole
from podline.commands.options import (
    answer,
    command_line,
    dataset_named,
    existing_store,
    fingerprint_option,
    json_option,
    recipe_argument,
    store_options,
    strategy_option,
)
from podline.commands.stage_command import stage_command
from podline.data.versions.record_names import find_records
from podline.documents.corrections import Correction, corrections, publish_review
from podline.documents.suspects import PAGE, newest_suspects
from podline.ledger.inventory.catalogue import choose_dataset, manifest_of
from podline.ledger.requests import Request
from podline.recipes import datasets
from podline.search.suspects.folds import PARTS, PRECISION, fold_specs, suspects_spec
from podline.search.suspects.review import read_review, write_review
from podline.stages.options import Choices, Length, TrainingGroup
from podline.stages.suspects import SuspectsSpec
from podline.stages.table import SUSPECTS
from podline.store.contract import explained

_NAMED = 10


@stage_command(
    "suspects",
    recipe_argument,
    click.option(
        "--parts",
        type=Whole(2, 100),
        default=PARTS,
        show_default=True,
        help="The number of parts; for each part, one model trains without it.",
    ),
    click.option(
        "--precision",
        type=Number(0.01, 0.99),
        default=PRECISION,
        show_default=True,
        help="List suspects so that about this share of them is wrong.",
    ),
    command_line(Length, "epochs"),
    command_line(TrainingGroup, "model", "steps", "batch_size", "learning_rate", "seed", "init", "assignments"),
    strategy_option,
    fingerprint_option,
)
def suspects(request: Request, parts: int, precision: float, fingerprint: str | None, **options: Any) -> SuspectsSpec:
    """Find labels that models which were not trained on them doubt, and estimate the share of wrong ones.

    The command trains the recipe several times, each time without a part of the training split, which the model then
    checks. Labels that are swapped on purpose measure the quality. After an interruption, the same command continues.

      podline data suspects cifar10 --epochs 10
      podline data suspects images.flowers --parts 2 --precision 0.5

    Next: `podline data review NAME`. It needs the extra `suspects`; without it, an error names the command.
    """
    require_extra("suspects", "data suspects")
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
    help="The table to write; a page with the pictures is written beside it.",
)
@store_options
@json_option
def review(name: str, out: Path, as_json: bool, **options: Any) -> None:
    """Write the newest suspects of a data set as a table to fill in, and a page with their pictures.

      podline data review images.flowers --out review.csv

    Fill in the column decision: keep, relabel (to new_label) or drop. Empty rows change nothing. Images that were
    reviewed before are not listed again. Next: `podline data apply review.csv`.
    """
    store = existing_store(options)
    folder, document = newest_suspects(store, dataset_named(name))
    said = corrections(store, document.dataset)
    rows = write_review(document, (each for each in document.suspects if each.image not in said), out)
    pictures = out.with_suffix(".html")
    with explained("write", pictures):
        pictures.write_bytes(store.read_bytes(f"{folder}/{PAGE}"))
    found = {"rows": rows, "table": str(out), "page": str(pictures)}
    answer(found, lambda: [f"{plural(rows, 'suspect')} in {out}, their pictures in {pictures}"], as_json=as_json)


@click.command("apply", cls=pages.Command)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE")
@click.option("--by", default="", help="The name of the reviewer.  [default: this user]")
@store_options
@json_option
def apply(file: Path, by: str, as_json: bool, **options: Any) -> None:
    """Apply a completed review: the next conversion of the data set uses it.

      podline data apply review.csv --by ann

    Reviews stay in the store; of two decisions about one image the later one counts. The manifest counts relabelled
    images, and lists dropped ones. Next: `podline run images --source SOURCE`.
    """
    store = existing_store(options)
    filled = read_review(file)
    _require_own(filled.dataset)
    manifest = manifest_of(store, choose_dataset(store, filled.dataset, None, silent()))
    filled = read_review(file, manifest.class_names)
    if not filled.corrections:
        raise SettingsError(f"{file}: got no decision, expected at least one; fill in keep, relabel or drop")
    name = publish_review(store, filled.dataset, by or getpass.getuser(), filled.corrections)
    decisions = [each.decision for each in filled.corrections.values()]
    counts = {each: decisions.count(each) for each in dict.fromkeys(decisions)}
    words = ", ".join(f"{count:,} {decision}" for decision, count in counts.items())
    lines = [f"{words}; {plural(filled.undecided, 'row')} undecided", store.where(name)]
    answer({"review": name, **counts, "undecided": filled.undecided}, lambda: lines, as_json=as_json)


@click.command("correct", cls=pages.Command)
@click.argument("name", metavar="NAME")
@click.option("--record", required=True, help="The image: its name in the source, or its place, as test[23].")
@click.option("--label", metavar="CLASS", help="The right class.")
@click.option("--drop", is_flag=True, help="Leave the image out.")
@click.option("--by", default="", help="The name of the reviewer.  [default: this user]")
@store_options
@json_option
def correct(name: str, record: str, label: str | None, drop: bool, by: str, as_json: bool, **options: Any) -> None:
    """Correct the label of an image, or leave it out: the next conversion of the data set does so.

      podline data correct images.flowers --record cat/1.jpg --label dog
      podline data correct images.flowers --record "test[23]" --drop

    Names are those of the newest version; `podline data show NAME --record` shows the image. It is a review like those
    of `podline data apply`: it stays in the store, and of two decisions about one image the later one counts.
    """
    if (label is None) == (not drop):
        raise SettingsError("got no --label and no --drop, or both; give one of them")
    store, dataset = existing_store(options), dataset_named(name)
    _require_own(dataset)
    manifest = manifest_of(store, choose_dataset(store, dataset, None, silent()))
    if label is not None and label not in manifest.class_names:
        known = first_few(manifest.class_names, _NAMED)
        raise SettingsError(f"got --label {label}, expected a class of {dataset}: {known}")
    found = find_records(store, manifest, record)
    said = Correction(decision="drop") if drop else Correction(decision="relabel", label=label or "")
    review = publish_review(store, dataset, by or getpass.getuser(), {each.image: said for each in found})
    lines = [f"{each.words}: {'left out' if drop else label} from the next conversion on" for each in found]
    answer({"review": review, "images": [each.image for each in found]}, lambda: lines, as_json=as_json)


def _require_own(dataset: str) -> None:
    if "corrections" not in type(datasets.settings_of(dataset, {})).model_fields:
        raise SettingsError(
            f"got a review of {dataset}, expected one of your own images: the labels of a published data set do not "
            "change; convert its images as your own"
        )
