"""Conversions of one's own images into small shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.documents.manifest import Manifest, read_manifest
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store


def images_spec(root: Path | str, source: Path | str, **settings: Any) -> ConvertSpec:
    """Return a conversion of images into squares of 16 pixels, unless something else is given."""
    given = {"root": str(root), "dataset": "images", "source": str(source), "side": 16, "shard_bytes": 20_000}
    return ConvertSpec.model_validate(given | settings)


def converted(root: Path | str, source: Path | str, **settings: Any) -> Manifest:
    """Convert images; return the manifest."""
    return read_manifest(open_store(str(root)), convert(images_spec(root, source, **settings), silent()).folder)
