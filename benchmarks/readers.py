"""Passes over shuffled batches by Podline, tf.data, grain and WebDataset, each in a fresh process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.child import measure, measure_elsewhere
from benchmarks.timing import in_turns
from podline.base.errors import PodlineError, SettingsError

PINNED = ("grain==0.2.18", "array_record==0.8.6", "webdataset==1.0.2", "numpy==2.4.6")
_SCRIPT = Path(__file__).with_name("other_readers.py")


def passes(work: Path, place: dict[str, str], source: str, batch_size: int, repetitions: int) -> dict[str, list[float]]:
    """Return the seconds of each reader's passes over the same images.

    Args:
        work: a folder for the environment of the other readers, and their files.
        place: root and folder of Podline's data set.
        source: the folder with the data set's raw files.
        batch_size: examples in a batch; must divide the number of images.
        repetitions: number of passes of each reader.

    Raises:
        SettingsError: the other readers cannot be installed.
        PodlineError: a reader failed, or the readers deliver different images.
    """
    python = install_readers(work / "env")
    sides: dict[str, Callable[[], dict[str, float]]] = {
        side: lambda side=side: measure(work, "benchmarks.batches:one_pass", **place, batch_size=batch_size, side=side)
        for side in ("podline", "tf.data")
    }
    for side in ("grain", "webdataset"):
        sides[side] = lambda side=side: measure_elsewhere(
            work, python, _SCRIPT, side, source=source, work=str(work), batch_size=batch_size
        )
    found = in_turns(sides, repetitions)
    delivered = {side: {(each["examples"], each["checksum"]) for each in passes} for side, passes in found.items()}
    if len(set().union(*delivered.values())) > 1:
        raise PodlineError(f"the readers deliver different images: {delivered}")
    return {side: [each["seconds"] for each in passes] for side, passes in found.items()}


def install_readers(folder: Path) -> Path:
    """Create a virtual environment with the other readers; return the path of its Python interpreter.

    Raises:
        SettingsError: uv is not installed, or fails to create the environment or to install the readers.
    """
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        raise SettingsError("uv, which installs the other readers, was not found; install it: pip install uv")
    python = folder / "bin" / "python"
    for command in (
        ["venv", "--quiet", "--python", sys.executable, str(folder)],
        ["pip", "install", "--quiet", "--python", str(python), *PINNED],
    ):
        done = subprocess.run([uv, *command], capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            why = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
            raise SettingsError(
                f"readers cannot install {', '.join(PINNED)} from a package index: {why[:300]}; give uv an index "
                "(UV_DEFAULT_INDEX), or leave this benchmark out"
            )
    return python
