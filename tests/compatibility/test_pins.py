"""What must not change unnoticed: names of runs and data sets, bytes of records, weights, the commands' options.

A change on purpose: ``RENEW_PINS=1 pytest tests/compatibility`` writes ``pins.json`` anew, and the
commit shows what became of it. Forms have pins of their own, in ``tests/deployments/parameter_schemas``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from podline.cli import cli
from podline.data.versions.fingerprint import fingerprint
from podline.documents.manifest import SourceFile, read_manifest
from podline.recipes.registry import get, names
from podline.stages.specs import ConvertSpec, TrainSpec
from podline.store.opening import open_store

PINS = Path(__file__).with_name("pins.json")
FILES = (SourceFile(name="raw", bytes=1, sha256="0" * 64),)
DETERMINISTIC = ("--batch-size", "16", "--learning-rate", "0.01", "--set", "deterministic=true", "--model", "linear")


def held(name: str, found: Any) -> None:
    """Compares what was found with the pin of that name, or writes the pin."""
    pins = json.loads(PINS.read_text()) if PINS.exists() else {}
    if os.environ.get("RENEW_PINS"):
        PINS.write_text(json.dumps({**pins, name: found}, indent=2, sort_keys=True) + "\n")
        return
    assert found == pins[name], "see the head of this file"


def test_every_recipe_s_run_keeps_its_name() -> None:
    held("runs", {name: TrainSpec(root="", recipe=get(name), fingerprint="0" * 16).run for name in names()})


@pytest.mark.parametrize("manifest_digest", ["", "0" * 64])
def test_a_run_s_name_depends_on_the_data_as_before(manifest_digest: str) -> None:
    spec = TrainSpec(root="", recipe=get("sample"), fingerprint="f", manifest_digest=manifest_digest)
    held(f"run with the data's digest {manifest_digest[:4]!r}", spec.run)


def test_every_data_set_keeps_its_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the decoders make of pixels depends on the processor and on their versions.
    monkeypatch.setattr("podline.data.decoders.pixels_digest", lambda: "0" * 16)
    datasets = sorted({get(name).dataset for name in names()} | {"coco_sample"})
    specs = {name: ConvertSpec(root="", dataset=name, source="") for name in datasets}
    held("fingerprints", {name: fingerprint(spec, FILES) for name, spec in specs.items()})


@pytest.mark.parametrize("own", [{}, {"side": 64, "max_people": 3, "keep_jpeg": True}])
def test_a_conversion_is_found_by_the_same_digest_and_written_the_same_way(own: dict[str, Any]) -> None:
    spec = ConvertSpec.model_validate({"root": "", "dataset": "coco", "source": "", **own})
    assert ConvertSpec.model_validate_json(spec.model_dump_json()) == spec
    held(f"conversion with {sorted(own)}", [spec.digest(), spec.model_dump(mode="json")])


@pytest.mark.usefixtures("stages_here", "parsed_here")
def test_what_the_drawn_samples_become_keeps_every_byte(tmp_path: Path, podline: Callable[..., Any]) -> None:
    def printed(*arguments: str) -> Any:
        return json.loads(podline(*arguments, "--root", tmp_path / "root", "--json").out)

    for dataset, (train, test) in {"sample": (60, 20), "coco_sample": (12, 4)}.items():
        raw = str(tmp_path / f"raw-{dataset}")
        podline("data", "draw", raw, "--dataset", dataset, "--train", train, "--test", test)
        folder = printed("convert", dataset, "--source", raw, "--allow-left-out", "1")["folder"]
        splits = read_manifest(open_store(tmp_path / "root"), folder).splits
        held(f"shards of {dataset}", {shard.file: shard.sha256 for split in splits for shard in split.shards})
    trained = printed("train", "sample", "--steps", "20", *DETERMINISTIC)
    held("run on the drawn sample", trained["run"])
    # Another kind of processor sums in another order, and ends with other last digits.
    if "avx512f" in Path("/proc/cpuinfo").read_text():
        held("weights with AVX-512", trained["weights_sha256"])


def test_every_command_keeps_its_options() -> None:
    held("options", dict(sorted(options(cli, "podline"))))


def options(command: click.Command, path: str) -> Iterator[tuple[str, list[str]]]:
    """Every command below one, with its options' names and its arguments'."""
    context = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below, f"{path} {name}")
        return
    yield path, sorted(name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts))
