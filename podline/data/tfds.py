"""Writes files for TensorFlow Datasets, so that ``tfds.builder_from_directory(folder)`` opens a data set.

The formats are those of TFDS 4.9 (``FeaturesDict.save_config`` and the ``DatasetInfo`` proto as JSON). They are written
by hand, without importing TFDS or TensorFlow. File names need no template, since Podline names shards as TFDS does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from podline.documents.manifest import FieldInfo, Manifest
from podline.recipes import datasets

_PACKAGE = "tensorflow_datasets.core.features"


def tfds_names(labels: Iterable[str]) -> list[str]:
    """Return the names of the files of :func:`tfds_files`, given the names of the label features."""
    return ["features.json", "dataset_info.json", *(f"{label}.labels.txt" for label in labels)]


def tfds_files(manifest: Manifest, class_names: Mapping[str, tuple[str, ...]]) -> dict[str, bytes]:
    """Return the files to write beside the shards, name → content.

    ``class_names``: label feature → its class names; every other feature is a tensor.
    """
    labels = [("\n".join(names) + "\n").encode() for names in class_names.values()]
    features = {field.name: _feature(field, class_names.get(field.name)) for field in manifest.fields}
    every = {"pythonClassName": f"{_PACKAGE}.features_dict.FeaturesDict", "featuresDict": {"features": features}}
    contents = [_json(every), _json(_dataset_info(manifest)), *labels]
    return dict(zip(tfds_names(class_names), contents, strict=True))


def _feature(field: FieldInfo, classes: tuple[str, ...] | None) -> dict[str, Any]:
    if classes is not None:
        label = {"numClasses": str(len(classes))}
        return {"pythonClassName": f"{_PACKAGE}.class_label_feature.ClassLabel", "classLabel": label}
    dimensions = {"dimensions": [str(size) for size in field.shape]}
    if field.encoding == "file":
        image = {"shape": dimensions, "dtype": field.dtype}
        return {"pythonClassName": f"{_PACKAGE}.image_feature.Image", "image": image}
    tensor = {
        "shape": dimensions,
        "dtype": field.dtype,
        # The type in a record: raw bytes, or an Example's own int64.
        "encoding": "none" if field.encoding == "varint" else "bytes",
    }
    return {"pythonClassName": f"{_PACKAGE}.tensor_feature.Tensor", "tensor": tensor}


def _dataset_info(manifest: Manifest) -> dict[str, Any]:
    dataset = datasets.known(manifest.dataset)
    return {
        "name": dataset.base if dataset else manifest.dataset,  # the first part of the shards' names
        "version": f"{manifest.layout_version}.0.0",
        "description": f"{manifest.dataset}, converted by Podline; {manifest.fingerprint} is its fingerprint.",
        "fileFormat": "tfrecord",
        "splits": [
            {
                "name": split.name,
                "shardLengths": [str(records) for records in split.shards.lengths],
                "numBytes": str(split.shards.bytes),
            }
            for split in manifest.splits
        ],
    }


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
