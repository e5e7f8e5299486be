"""Pairs of runs with one planted difference each, trained by the commands: does ``podline runs compare`` name just it?

    PYTHONPATH=.:tests/support python tests/support/planted_differences.py FOLDER

Planted are a setting, the label of one image, a line of code, the version of a dependency and the number of devices. It
says what is named for each, and ends with exit code 1 if that is not exactly what was planted. It takes some minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
_PACKAGES = ("podline", "beam_jobs", "tasks", "flows")
_RECIPE = ["sample", "--steps", "60", "--set", "model.width=0.25"]
_GIT = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
_EDITED = "podline/training/loop.py"
_LABELS = b"U\x06labels]("


class Bench:
    """A checkout of the code, a store, and the data."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.code, self.planted = folder, folder / "code", folder / "planted"
        for package in _PACKAGES:
            shutil.copytree(
                PROJECT / package, self.code / package, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
            )
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "as it was"]):
            subprocess.run([*_GIT, *words], cwd=self.code, check=True)
        self.podline("data", "draw", str(folder / "drawn"), "--train", "500", "--test", "200", root=False)
        self.data = self.converted(folder / "drawn")

    def podline(self, *words: str, root: bool = True) -> Any:
        """What a command answers, as a process of its own."""
        where = ["--root", str(self.folder / "root"), "--json"] if root else []
        paths = os.pathsep.join(map(str, (self.planted, self.code)))
        done = subprocess.run(
            [sys.executable, "-m", "podline.cli", *words, *where],
            cwd=self.code,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"podline {' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout) if root else None

    def converted(self, source: Path) -> str:
        """A data set; its fingerprint."""
        fingerprint = self.podline("convert", "sample", "--source", str(source))["fingerprint"]
        self.podline("validate", "sample", "--fingerprint", fingerprint)
        return fingerprint

    def night(self, *more: str, data: str = "") -> str:
        """Trains and evaluates, whatever was trained before; the name of the entry in the ledger."""
        shutil.rmtree(self.folder / "root" / "runs", ignore_errors=True)
        run = self.podline("train", *_RECIPE, "--fingerprint", data or self.data, *more)["run"]
        self.podline("evaluate", run, *(more if "--strategy" in more else ()))
        return self.podline("runs", "list", "--last", "1")[0]["name"]

    def relabelled(self) -> str:
        """The data with another label for one training image; its fingerprint."""
        source = self.folder / "relabelled"
        shutil.copytree(self.folder / "drawn", source)
        [file, *_] = sorted(source.rglob("data_batch_1"))
        content = bytearray(file.read_bytes())
        # Each label has an opcode before it.
        place = content.index(_LABELS) + len(_LABELS) + 1
        content[place] = (content[place] + 1) % 10
        file.write_bytes(content)
        return self.converted(source)

    def edit(self) -> None:
        """Plants a line of code."""
        with (self.code / _EDITED).open("a") as file:
            file.write("# planted\n")

    def install(self) -> None:
        """Plants another version of a dependency."""
        metadata = self.planted / "idna-99.0.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text("Metadata-Version: 2.1\nName: idna\nVersion: 99.0\n")


def main() -> None:
    """Plants one difference after the other."""
    bench = Bench(Path(sys.argv[1]))
    first = bench.night()
    wrong = 0

    def held(what: str, name: str, area: str, row: str) -> None:
        nonlocal wrong
        found = bench.podline("runs", "compare", first, name)["differences"]
        told = [f"{each['area']}: {each['name']}: {' → '.join(each['values'])}" for each in found]
        right = [(each["area"], each["name"]) for each in found] == [(area, row)]
        wrong += not right
        sys.stdout.write(f"{what:12} {'just it' if right else 'WRONG':8} {'; '.join(told) or 'nothing'}\n")
        sys.stdout.flush()

    held("setting", bench.night("--set", "task.label_smoothing=0.2"), "settings", "task.label_smoothing")
    held("label", bench.night(data=bench.relabelled()), "data", "train")
    held("devices", bench.night("--strategy", "cpu:2"), "environment", "devices")
    bench.install()
    held("dependency", bench.night(), "environment", "packages.idna")
    shutil.rmtree(bench.planted)
    bench.edit()
    held("code", bench.night(), "code", _EDITED)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
