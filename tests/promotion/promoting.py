"""A process that promotes a run when another process is about to do the same; see test_two_promotions.py.

promoting.py ROOT RUN GATE    GATE is a folder where both meet right before the champion changes
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from podline.commands.models import _spec as spec_of
from podline.documents import champions
from podline.errors import OvertakenError
from podline.progress import silent
from podline.promotion.promote import promote
from podline.store.opening import open_store


def main(root: str, run: str, gate: Path) -> None:
    """Says whether it won, or what it is told."""
    crown = champions.crown

    def met(*arguments: object) -> champions.Crowned:
        (gate / run).touch()
        deadline = time.monotonic() + 200
        while len(list(gate.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        return crown(*arguments)  # pyright: ignore[reportArgumentType]

    champions.crown = met
    spec = spec_of(open_store(root), run, (), anyway=False, reason="")
    try:
        result = promote(spec, silent())
        sys.stdout.write("won\n" if result.promoted else f"refused: {result.refusals}\n")
    except OvertakenError as error:
        sys.stdout.write(f"told: {error}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
