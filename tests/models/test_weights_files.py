"""Hostile files of weights: whatever they name, nothing outside them is read."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from podline.base.errors import ArtifactError
from podline.models.weights_files import read_weights

FLOATS = np.arange(4, dtype=np.float32)


def _virtual(group: Any, other: Path) -> None:
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource(str(other), "values", (4,))
    group.create_virtual_dataset("0", layout)


def _nested(group: Any, _other: Path) -> None:
    for _ in range(300):
        group = group.create_group("inner")


def _again(group: Any, _other: Path) -> None:
    group["0"] = FLOATS
    group["1"] = group["0"]


def _claims(group: Any, _other: Path) -> None:
    for number in range(9):
        group.create_dataset(str(number), (1 << 21,), "f4", chunks=(1024,))


HOSTILE: dict[str, Callable[[Any, Path], Any]] = {
    "external": lambda group, other: group.create_dataset("0", (4,), "f4", external=[(str(other), 0, 16)]),
    "ExternalLink": lambda group, other: group.update({"0": h5py.ExternalLink(str(other), "/values")}),
    "SoftLink": lambda group, other: group.update({"0": h5py.SoftLink("/elsewhere")}),
    "virtual": _virtual,
    "second link": lambda group, other: group.update({"0": group.parent}),
    "nested": _nested,
    "to an object": _again,
    "MB of memory to read": lambda group, other: group.create_dataset("0", (1 << 33,), "f4", chunks=(1024,)),
    "bytes of weights, expected at most": _claims,
}


@pytest.mark.parametrize(("kind", "suffix"), [*((kind, ".weights.h5") for kind in HOSTILE), ("external", ".keras")])
def test_what_leads_out_of_a_file_is_refused_by_name(tmp_path: Path, kind: str, suffix: str) -> None:
    other, content = tmp_path / "other.h5", tmp_path / "content.h5"
    with h5py.File(other, "w") as h5:
        h5["values"] = FLOATS
    with h5py.File(content, "w") as h5:
        h5["elsewhere"] = FLOATS
        group = h5.create_group("layers/dense/vars")
        group.attrs["name"] = "dense"
        HOSTILE[kind](group, other)
    file = tmp_path / f"hostile{suffix}"
    if suffix == ".keras":
        with zipfile.ZipFile(file, "w") as archive:
            archive.write(content, "model.weights.h5")
    else:
        content.rename(file)
    with pytest.raises(ArtifactError, match=kind) as error:
        read_weights(file)
    assert str(file) in str(error.value)


def test_the_limits_of_a_link_are_those_of_its_file(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((4100, 4100)).astype(np.float32)  # more than any file may unpack to
    np.savez(tmp_path / "blob.npz", **{"dense/kernel": values})
    (tmp_path / "link.npz").symlink_to("blob.npz")
    np.testing.assert_array_equal(read_weights(tmp_path / "link.npz")["dense"]["kernel"], values)


HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (900000000000,), }\n"
BOMBS = {
    "m.keras": ("model.weights.h5", bytes(1 << 30)),
    "m.npz": ("dense/kernel.npy", b"\x93NUMPY\1\0" + len(HEADER).to_bytes(2, "little") + HEADER),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_claims_far_more_ends_in_one_line(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(*BOMBS[name])
    with pytest.raises(ArtifactError, match=r"takes more than \d+ MB of memory to read") as error:
        read_weights(tmp_path / name)
    assert str(error.value).startswith(f"init={tmp_path / name} ")
    assert "\n" not in str(error.value)
