"""Sandboxed parsers run in this process: most tests are about what is parsed, and a sandbox takes a second to start."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from podline.base import entry_points
from podline.data.sandbox.limits import ParseLimits
from podline.data.sandbox.pool import Sandbox


def _ask(sandbox: Sandbox, items: Sequence[Any], _limits: ParseLimits, _factor: float, **_kwargs: Any) -> list[Any]:
    maker, arguments = sandbox._make
    parse = entry_points.load(maker)(*arguments)
    return [("value", json.loads(json.dumps(parse(item)))) for item in items]


@contextmanager
def parsing_here() -> Iterator[None]:
    """In the body every sandbox parses in this process, without limits of its own."""
    with mock.patch.object(Sandbox, "_ask", _ask):
        yield
