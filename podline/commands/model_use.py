"""``podline models predict``, ``serve`` and ``export``: use a champion's model, or the model of any finished run."""

from __future__ import annotations

import glob
import socket
from pathlib import Path
from typing import Literal, get_args

import click

from podline.base import entry_points
from podline.base.errors import SettingsError, SourceError
from podline.base.plain import plain
from podline.champions.serving.layout import lay_out, require_champion, require_unchanged
from podline.commands import display, pages
from podline.commands.options import (
    Number,
    Whole,
    answer,
    complete_either,
    in_store,
    load_settings,
    run_argument,
    table_option,
)
from podline.commands.stage_command import stage_command
from podline.data.rawfiles import require_local
from podline.documents import champions
from podline.documents.champions import Crowned
from podline.ledger.inventory.catalogue import train_result
from podline.ledger.requests import Request
from podline.stages.supervision.running import perform
from podline.stages.tools import ExportFormat, ExportSpec, PredictSpec
from podline.store.contract import BUCKET_SCHEME, Store

_model_argument = click.argument("name", metavar="RUN|RECIPE", shell_complete=complete_either)
_SERVES = "serving number {version}, {run}, at {url}"
_SAVED_MODEL: Literal["saved-model"] = "saved-model"
_ENDINGS: dict[ExportFormat, str] = {
    _SAVED_MODEL: "",
    "onnx": ".onnx",
    "tflite": ".tflite",
    "tflite-int8": "-int8.tflite",
}


@stage_command(
    "predict",
    run_argument,
    click.argument("paths", metavar="PATH...", nargs=-1, required=True),
    click.option("--champion", is_flag=True, help="RUN is the name of a recipe; use the recipe's champion."),
    table_option("--table", "Write a row for each picture to FILE.csv or FILE.parquet, instead of files to --out."),
    click.option(
        "--top",
        type=Whole(1),
        help="The largest number of classes or labels in a row of the table.  "
        "[default: 5 classes, or all predicted labels]",
    ),
    click.option(
        "--out",
        type=click.Path(path_type=Path),
        help="The folder to write to.  [default: predictions/RUN in the store or a bucket's cache]",
    ),
    click.option(
        "--threshold",
        type=Number(0, 1),
        help="The lowest score of a person, or probability of a label.  "
        "[default: chosen by the run's evaluation on training images, for each label its own]",
    ),
)
def predict(
    request: Request,
    run: str,
    paths: tuple[str, ...],
    champion: bool,
    table: Path | None,
    top: int | None,
    out: Path | None,
    threshold: float | None,
) -> PredictSpec:
    """Predict for pictures, folders, or sources in any layout, with a finished run's model.

    For a pose network, the command draws the people on each picture (left joints blue, right joints orange) and writes
    predictions.json: COCO results in pixels of the picture. For a classifier, it lists the most probable classes of
    each picture.

      podline models predict coco_pose-0123456789ab street.jpg beach.png --root podline-root
      podline models predict cifar10-0123456789ab cat.jpg --json
      podline models predict --champion cifar10 photos/ --table answers.parquet

    A table keeps the source's order, and gives the reason for each omitted picture. If the source has labels, the
    command also shows the accuracy. `podline runs list` shows the runs. See docs/how-to/predict.md.
    """
    if table and out:
        raise SettingsError(
            "got --table and --out, expected one of the two: with --table no files are written to a folder"
        )
    asked = [path for given in paths for path in _expanded(given)]
    store = request.store
    run = _champion(store, run).run if champion else _trained(store, run)
    target = out or store.beside / "predictions" / run
    return PredictSpec(
        root=store.uri,
        run=run,
        images=tuple(asked),
        table=str(table.expanduser().absolute()) if table else "",
        top=top,
        out=str(target.expanduser().absolute()),
        threshold=threshold,
    )


def _expanded(path: str) -> list[str]:
    """Return the absolute paths of a file, a folder, or a pattern with wildcards; leave a bucket's prefix unchanged.

    Raises:
        SourceError: there is no such file or folder.
    """
    if path.startswith(BUCKET_SCHEME):
        return [path]
    place = Path(path).expanduser().absolute()
    found = [str(place)] if place.exists() else sorted(glob.glob(str(place), recursive=True))  # noqa: PTH207 (absolute)
    if not found:
        raise SourceError(
            f"{path}: no such file or folder; give pictures, a folder, or a pattern such as 'photos/*.jpg'"
        )
    return found


def _champion(store: Store, recipe: str) -> Crowned:
    entry = require_champion(store, recipe)
    require_unchanged(store, entry)
    return entry


def _champion_or_none(store: Store, name: str) -> Crowned | None:
    """Return the champion of the recipe ``name``; None if ``name`` is a finished run."""
    if not store.exists(f"runs/{name}/spec.json"):
        return _champion(store, name)
    _trained(store, name)
    return None


def _trained(store: Store, run: str) -> str:
    """Return ``run`` after checking that it is a finished run.

    Raises:
        SettingsError: ``run`` is a recipe with a champion.
        StoreError: there is no such finished run.
    """
    if run in champions.recipes(store):
        raise SettingsError(f"got the recipe {run}, expected a run; add --champion to use the recipe's champion")
    train_result(store, run)
    return run


@click.command("serve", cls=pages.Command)
@_model_argument
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address on which to listen; 0.0.0.0 means all addresses.",
)
@click.option("--port", type=Whole(0, 65535), default=8501, show_default=True, help="The port; 0 chooses a free port.")
@in_store
def serve(store: Store, name: str, host: str, port: int, as_json: bool) -> None:
    """Serve a recipe's champion, or any finished run, over HTTP (`:predict`), until SIGTERM.

      podline models serve sample --root podline-root
      curl http://127.0.0.1:8501/v1/models/sample

    After a promotion or rollback the server changes the model within seconds, without dropping requests. It asks for no
    password, so change --host only in a trusted network. See docs/how-to/serve.md.
    """
    _champion_or_none(store, name)
    with _listening(host, port) as listening:
        entry_points.load("podline.champions.serving.server:serve")(
            store,
            name,
            listening,
            lambda started: answer(started, lambda: [_SERVES.format(**started)], as_json=as_json),
            lambda line: click.echo(plain(line), err=True),
        )


def _on_this_machine(_context: click.Context, _parameter: click.Parameter, folder: Path) -> Path:
    require_local(folder)
    return folder


@click.command("export", cls=pages.Command)
@_model_argument
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path), callback=_on_this_machine)
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(ExportFormat)),
    default=_SAVED_MODEL,
    show_default=True,
    help="The format; tflite-int8 computes with 8-bit integers.",
)
@click.option(
    "--examples",
    type=Whole(1),
    help="The number of test examples on which the export is evaluated, if it is evaluated.  [default: all]",
)
@in_store
def export(store: Store, name: str, folder: Path, form: ExportFormat, examples: int | None, as_json: bool) -> None:
    """Export a champion, or any finished run, for TensorFlow Serving, KServe and others.

      podline models export sample models --root podline-root
      podline models export sample-0123456789ab models --format tflite-int8

    A champion's SavedModel is FOLDER/RECIPE/NUMBER, with verified checksums; a run's is FOLDER/RUN/1. The folder
    appears complete, and an existing folder stays unchanged. The other formats are single files, such as
    FOLDER/RECIPE/NUMBER.onnx, with uint8 images as input. These files, and a run's SavedModel, are evaluated on test
    examples and compared with the original model; a .json file has the result. See docs/how-to/serve.md.
    """
    entry = _champion_or_none(store, name)
    if entry and form == _SAVED_MODEL:
        if examples:
            raise SettingsError("got --examples for a champion's SavedModel, which is not evaluated; leave it out")
        place = lay_out(store, name, folder)
        document = {"recipe": name, "version": int(place.name), "folder": str(place)}
        answer(document, lambda: [str(place)], as_json=as_json)
        return
    run, number = (entry.run, entry.number) if entry else (name, 1)
    place = folder.expanduser().absolute() / name / f"{number}{_ENDINGS[form]}"
    if form == _SAVED_MODEL and place.exists():
        raise SettingsError(f"{place} exists; move it away, or give another FOLDER")
    spec = ExportSpec(
        root=store.uri,
        run=run,
        weights_sha256=train_result(store, run).weights_sha256,
        format=form,
        file=str(place),
        examples=examples or 0,
    )
    with display.shown() as listener:
        result = perform(spec, listener, load_settings({"root": store.uri}))
    answer(result, result.lines, as_json=as_json)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {host}, port {port}: {error.strerror}; give another --host or --port"
        ) from error
