"""A converted data set of a few drawn stick people, as the conversion stage makes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parsing_here import parsing_here

from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.data.people.sample import write_coco_sample
from podline.documents.manifest import Manifest, read_manifest
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store


def publish_people(root: Path, *, train: int = 12, test: int = 7, side: int = 128, **settings: Any) -> Manifest:
    """Draw people and convert them into a store, as ``datasets/coco_sample/<fingerprint>``."""
    source = write_coco_sample(root / "people", train=train, test=test)
    given: dict[str, Any] = {
        "root": str(root),
        "dataset": "coco_sample",
        "source": str(source),
        "side": side,
        "max_people": 8,
    }
    given["allow_left_out"] = 1  # of so few, what is drawn damaged is many
    spec = ConvertSpec.model_validate({**given, **settings})
    with parsing_here():
        result = convert(spec, silent())
    return read_manifest(open_store(root), result.folder)
