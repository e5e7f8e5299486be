"""Recognize a store by its marker file and by the folder names of data sets and runs.

Other programs use folders named ``runs`` and ``datasets`` too. The first publication into an empty root writes the
marker, as does the next publication into a store of Podline 1.0. Without the marker nothing is deleted.
"""

from __future__ import annotations

import re

MARKER = "podline-store.json"
_HOLDING = re.compile(r"(datasets/[^/]+/[0-9a-f]{16}|runs/[^/]+-[0-9a-f]{12})/")


def holding_of(name: str) -> str:
    """Return the folder of the data set or run that contains a name, if the folder is named as Podline does.

    For other names it is empty.
    """
    found = _HOLDING.match(name)
    return found[1] if found else ""
