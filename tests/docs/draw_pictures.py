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


def draw(root: Path, page: str, name: str, width: int, height: int) -> None:
    """Photograph the top of a store's page as docs/pictures/NAME.webp; the store's folder is shown by its name."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no chromium in PATH; install it")
    with tempfile.TemporaryDirectory() as folder:
        copy, shot = Path(folder) / "page.html", Path(folder) / "shot.png"
        copy.write_text((root / page).read_text().replace(f"{root.absolute()}", root.name))
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--window-size={width},{height}",
        ]
        subprocess.run([chromium, *options, f"--screenshot={shot}", copy.as_uri()], check=True)
        Image.open(shot).convert("RGB").save(PICTURES / f"{name}.webp", quality=75, method=6)


if __name__ == "__main__":
    store = Path(sys.argv[1])
    first, *_ = sorted(store.glob("runs/*/report.html"), key=lambda page: page.stat().st_mtime)
    draw(store, f"{first.relative_to(store)}", "report", 1100, 1000)
    draw(store, "index.html", "nights", 1300, 900)
