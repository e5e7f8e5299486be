"""What makes a folder or a bucket's prefix a store: a marker in its root, and the names of data sets and runs.

Other programs have folders named ``runs`` and ``datasets``, too. The first publication into an empty root writes the
marker, as does the next one into a store of Podline 1.0; without the marker nothing is deleted.
"""

from __future__ import annotations

import re

MARKER = "podline-store.json"
_HOLDING = re.compile(r"(datasets/[^/]+/[0-9a-f]{16}|runs/[^/]+-[0-9a-f]{12})/")


def holding_of(name: str) -> str:
    """Return the folder of the data set or run to which a name belongs, in the form ``convert`` or ``train`` names it.

    It is empty for every other name.
    """
    found = _HOLDING.match(name)
    return found[1] if found else ""
