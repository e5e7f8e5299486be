"""``podline data check`` says what a conversion would make of images, and draws some."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from drawn_images import as_folders, as_table, images
from PIL import Image

from podline.cli import cli


def test_what_a_conversion_would_make_of_images(tmp_path: Path) -> None:
    folder = as_folders(tmp_path / "raw", images())
    (folder / "cat" / "notes.txt").write_text("no image")
    command = ["data", "check", str(folder), "--root", str(tmp_path / "root"), "--set", "conversion.side=16"]
    said = CliRunner().invoke(cli, [*command, "--sheet", str(tmp_path / "sheet.png")])
    assert said.exit_code == 0, said.output
    assert "layout: folders, <class>/; 3 classes, " in said.stdout
    assert "read 61 = written 60 + quarantined 1" in said.stdout
    assert "left out: 1 file: is no JPEG, PNG, WebP, BMP, TIFF or GIF (cat/notes.txt)" in said.stdout
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size[0] > 500
    document = json.loads(CliRunner().invoke(cli, [*command, "--json"]).stdout)
    assert sum(document["sizes"].values()) == sum(document["splits"].values()) == 60
    assert document["classes"]["cat"]["train"] + document["classes"]["cat"]["test"] == 20
    assert document["left_out"][0]["record"] == "cat/notes.txt"


def test_a_source_that_would_be_refused(tmp_path: Path) -> None:
    folder = as_folders(as_table(tmp_path / "raw", images()), images())
    command = ["data", "check", str(folder), "--root", str(tmp_path / "root")]
    refused = CliRunner().invoke(cli, command)
    assert refused.exit_code != 0
    assert "several layouts" in str(refused.output) + str(refused.exception)
    assert CliRunner().invoke(cli, [*command, "--layout", "table"]).exit_code == 0
