"""Draw the pictures of the docs: the top of a report and of the page of nights, from a store.

Call it with a store in which the tutorial of nights was followed::

    python tests/docs/draw_pictures.py podline-root
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


def draw(page: Path, name: str, height: int) -> None:
    """Photograph the top of a page as docs/pictures/NAME.webp."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no chromium in PATH; install it")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size=1100,{height}"]
        subprocess.run([chromium, *options, f"--screenshot={shot}", page.absolute().as_uri()], check=True)
        Image.open(shot).convert("RGB").save(PICTURES / f"{name}.webp", quality=75, method=6)


if __name__ == "__main__":
    root = Path(sys.argv[1])
    first, *_ = sorted(root.glob("runs/*/report.html"), key=lambda page: page.stat().st_mtime)
    draw(first, "report", 1000)
    draw(root / "index.html", "nights", 800)
