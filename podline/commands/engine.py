"""``podline engine check``: tests an engine with a tiny conversion, and reports an error in one line."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from podline.base.errors import EngineError, HangError
from podline.base.progress import Event
from podline.commands import pages
from podline.commands.options import (
    Number,
    command_line,
    engine_argument,
    load_settings,
    say,
    store_options,
)
from podline.documents.versions import JOBS
from podline.recipes import datasets
from podline.stages.options import MachineGroup
from podline.stages.specs import ConvertSpec
from podline.stages.supervision.running import perform
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.opening import open_store

_TRAIN, _TEST = 2000, 200  # number of synthetic images: enough for several shards


@click.group("engine", cls=pages.Group)
def engine_group() -> None:
    """Check engines, which run conversions on other machines; see docs/how-to/engines.md."""


@engine_group.command("check", cls=pages.Command)
@engine_argument
@command_line(MachineGroup, "beam_options")
@click.option(
    "--seconds",
    type=Number(1),
    default=120.0,
    show_default=True,
    help="Fail if the engine reports nothing for this long.",
)
@store_options
def check(engine: str, beam_options: tuple[str, ...], seconds: float, **given: Any) -> None:
    """Convert a few synthetic images on an engine, as a test.

    Each line reports a successful check. The first failure ends the command with an error, for example: workers without
    Podline or with another release, no access to the bucket, a wrong clock, a refused account, no answer.

      podline engine check dask:scheduler:8786 --root gs://bucket/podline
      podline engine check prism

    Next: give the same engine to `podline convert` or `podline run` with --engine.
    """
    settings = load_settings(given)
    store = open_store(settings.root)
    store.now()
    say([f"store    {store.uri}: this machine can write to it"])
    events: list[Event] = []
    with _temporary_store(store) as (folder, source):
        spec = ConvertSpec(
            root=folder,
            dataset="sample",
            source=source,
            shard_bytes=1_000_000,
            engine=engine,
            beam_options=beam_options,
        )
        try:
            result = perform(spec, events.append, settings.model_copy(update={"silence": seconds}))
        except HangError as error:
            raise EngineError(
                f"engine {engine}: no worker reported within {seconds:g} s; check that workers run, that Beam and "
                "Podline are installed for their Python, and what their logs say"
            ) from error
    figures = [event["metrics"] for event in events if event["event"] == "progress"]
    workers = [each["workers"] for each in figures if "workers" in each]
    count, seconds = int(workers[-1]) if workers else 1, result.seconds
    say([f"workers  {count}: with the same release of Podline, access to the store, correct clocks"])
    say([f"engine   {engine}: {result.written:,} records in {result.shards_written} shards in {seconds:.1f} s"])


@contextmanager
def _temporary_store(store: Store) -> Iterator[tuple[str, str]]:
    """Yield a temporary store's URI and a generated source; after the body, delete all but the logs of an error."""
    name = f"{JOBS}/check-{uuid.uuid4().hex}"
    sample = datasets.find("sample")
    with store.workspace("check") as work:
        source = sample.code(sample.draw)(work / "drawn", train=_TRAIN, test=_TEST)
        uri = f"{store.uri.rstrip('/')}/{name}"
        try:
            yield uri, str(source)
        finally:
            for file in store.list(name):
                store.delete(file)
        made = open_store(uri)
        shutil.rmtree(made.root if isinstance(made, FolderStore) else made.scratch, ignore_errors=True)
