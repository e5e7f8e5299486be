"""docs/how-to/data-set.md's layout, images in HDF5, in an installed package: the same records as in folders."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from drawn_images import as_folders, images, opened, records, rows_of
from support.extending import code_of, install

from podline.base.errors import SettingsError, SourceError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.data.images.settings import ImagesSettings
from podline.data.versions.fingerprint import EffectiveSpec, memory_of
from podline.documents.manifest import read_manifest
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store

HEADING = "## A layout of images"


@pytest.fixture(name="site")
def _site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = install(tmp_path / "site", {"my_layouts": code_of(HEADING, "python")}, code_of(HEADING, "toml"))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    yield folder
    sys.modules.pop("my_layouts", None)


def as_hdf5(folder: Path) -> Path:
    folder.mkdir()
    rows = rows_of(images())
    with h5py.File(folder / "all.h5", "w") as file:
        data = file.create_dataset("images", len(rows), h5py.vlen_dtype(np.uint8))
        for number, (_, _, image) in enumerate(rows):
            data[number] = np.frombuffer(image, np.uint8)
        file["labels"] = [label for _, label, _ in rows]
    return folder


@pytest.mark.usefixtures("site", "parsed_here")
def test_it_is_converted_to_the_records_of_class_folders(tmp_path: Path) -> None:
    folder, expected = as_hdf5(tmp_path / "raw"), opened(as_folders(tmp_path / "folders", images()))
    (folder / "notes.txt").write_text("no image")
    source = opened(folder)
    assert records(source) == records(expected)
    assert (source.files, source.read) == (expected.files, 61)
    assert "layout: HDF5, files: 1; 3 classes" in source.notes()[0]
    settings = ImagesSettings(side=16, layout="hdf5")
    spec = ConvertSpec(root=str(tmp_path / "root"), dataset="images", source=str(folder), settings=settings)
    manifest = read_manifest(open_store(spec.root), convert(spec, silent()).folder)
    assert (sum(split.records for split in manifest.splits), len(manifest.quarantined)) == (60, 1)


@pytest.mark.usefixtures("site")
def test_it_is_a_choice_and_named_where_nothing_fits(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    with pytest.raises(SourceError, match=r"accepted are class folders .*, HDF5 files of images and labels; see docs"):
        opened(tmp_path / "raw")
    with pytest.raises(SettingsError, match="there is no layout 'hdf'; did you mean 'hdf5'"):
        opened(tmp_path / "raw", layout="hdf")


@pytest.mark.usefixtures("site")
def test_a_file_that_links_to_another_is_refused(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    with h5py.File(tmp_path / "raw/bomb.h5", "w") as file:
        file["images"], file["labels"] = h5py.ExternalLink("other.h5", "images"), ["a", "b"]
    with pytest.raises(SourceError, match=r"bomb\.h5 holds no data set images of its own"):
        opened(tmp_path / "raw")


def test_a_changed_reader_reads_again(tmp_path: Path, site: Path) -> None:
    folder, settings = as_hdf5(tmp_path / "raw"), ImagesSettings(side=16)
    spec = ConvertSpec(root=str(tmp_path / "root"), dataset="images", source=str(folder), settings=settings)
    before, known = opened(folder), memory_of(EffectiveSpec(spec), open_store(spec.root)).key
    other = spec.model_copy(update={"settings": settings.model_copy(update={"label_column": "kind"})})
    assert memory_of(EffectiveSpec(other), open_store(spec.root)).key != known
    module = site / "my_layouts.py"
    module.write_text(module.read_text().replace("label.decode()", "label.decode().upper()"))
    assert memory_of(EffectiveSpec(spec), open_store(spec.root)).key != known
    assert opened(folder).class_names == tuple(name.upper() for name in before.class_names)
    module.write_text("import nobody\n" + module.read_text())
    with pytest.raises(SettingsError, match=r"my_layouts:Hdf5 .*nobody"):
        opened(folder)
