"""Mutated inputs for every parser of files from strangers: small valid ones, changed by chance, as a seed says.

Input ``i`` of a parser is a function of the seed, the parser's name and ``i``, so any one can be made again:

    python tests/data/sources/mutated_inputs.py --parser pickle --first 17 --count 1 --write input

What comes out must be data or one of Podline's own errors, in one line. All is read in one sandbox: those that the
readers start are called in it, with their own limits, so that thousands of inputs need one process.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "support")]

from hostile_files import KINDS  # noqa: E402 (it lies in a folder that was just added)
from mutated_parsers import PARSERS, Parser  # noqa: E402 (it lies beside this file)

from podline import entry_points, sandbox  # noqa: E402
from podline.errors import PodlineError  # noqa: E402
from podline.sandbox import Breach, Limits, Sandbox  # noqa: E402

SEED = 18
_OUTER = Limits(2 << 30, 120.0)
_BATCH = 20
_WORDS = [
    b"\0" * 4,
    b"\xff" * 4,
    b"\xff\xff\xff\x7f",
    b"PK\1\2",
    b",",
    b"\n",
    b'"',
    b"{",
    b"]",
    b"1e999",
    b"-1",
    b"../",
]


class Finding(NamedTuple):
    """What an input did: its parser and number, and what was wrong, if anything."""

    parser: str
    number: int
    problem: str


class _Here:
    """Stands for the child of a sandbox: calls its function in this process, which is one itself."""

    def __init__(self, maker: str, arguments: Sequence[object]) -> None:
        self._parse: Callable[[Any], Any] = entry_points.load(maker)(*arguments)

    def ask(self, items: Sequence[Any], limits: Sequence[Limits], _factor: float) -> list[Any]:
        guard: Any = sandbox._guard
        replies = []
        for item, limit in zip(items, limits, strict=True):
            guard.begin(limit, "input")
            guard.what = ""
            replies.append(sandbox._guarded(guard, partial(self._parse, item)))
            guard.end()
        return json.loads(json.dumps(replies))

    def end(self) -> None:
        """There is nothing to end."""


def _of_kind(kind: str) -> Parser:
    """A parser that reads a source with an input in the place of one of its files."""
    with tempfile.TemporaryDirectory() as folder:
        written = KINDS[kind].write(Path(folder))
        place, seed = written.relative_to(folder), written.read_bytes()

    def prepare(folder: Path) -> None:
        (folder / "source").mkdir()
        KINDS[kind].write(folder / "source")

    def read(folder: Path, content: bytes) -> None:
        file = folder / "source" / place
        file.write_bytes(content)
        try:
            KINDS[kind].read(folder / "source", file)
        finally:
            file.write_bytes(seed)
            shutil.rmtree(folder / "work", ignore_errors=True)

    return Parser([seed], _WORDS, prepare, read)


_OF_KINDS = [kind for kind in KINDS if kind not in PARSERS and kind not in ("asked PNG", "asked JPEG")]
NAMES = [*PARSERS, *_OF_KINDS]


@functools.cache
def parser(name: str) -> Parser:
    """Return a parser by its name."""
    return PARSERS[name] if name in PARSERS else _of_kind(name)


@functools.cache
def _prepared(name: str) -> tuple[Path, Any]:
    folder = tempfile.TemporaryDirectory(prefix="podline-mutated-")
    parser(name).prepare(Path(folder.name))
    return Path(folder.name), folder


def content(name: str, number: int) -> bytes:
    """Return an input."""
    return parser(name).input(random.Random(f"{SEED}/{name}/{number}"))


def runner() -> Callable[[tuple[str, int]], Finding]:
    """Return what reads an input; runs in a sandbox."""
    sandbox._Child = _Here

    def run(request: tuple[str, int]) -> Finding:
        return Finding(*request, _outcome(parser(request[0]), _prepared(request[0])[0], content(*request)))

    return run


def _outcome(read_by: Parser, folder: Path, data: bytes) -> str:
    """What was wrong with what came of an input; empty if nothing was."""
    try:
        read_by.read(folder, data)
    except PodlineError as error:
        try:
            str(error).encode()
        except UnicodeEncodeError:
            return f"an error that cannot be printed: {str(error)!r}"
        return f"an error of several lines: {str(error)!r}" if "\n" in str(error) else ""
    except Exception as error:
        places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
        return f"{type(error).__name__}: {str(error)[:200]} at {' '.join(places[-3:])}"
    return ""


def opened() -> Sandbox:
    """Return a sandbox for :func:`findings`."""
    return Sandbox(f"{Path(__file__).stem}:runner")


def findings(outer: Sandbox, name: str, first: int, count: int) -> Iterator[Finding]:
    """Read inputs; yield what was wrong. One that takes too much, or crashes its parser, is refused by its sandbox."""
    for start in range(first, first + count, _BATCH):
        requests = [(name, number) for number in range(start, min(start + _BATCH, first + count))]
        for result in outer.map(requests, [_OUTER] * len(requests)):
            if not isinstance(result, Breach) and result[2]:
                yield Finding(*result)


def main() -> None:
    """Run inputs; print what is odd."""
    options = argparse.ArgumentParser(description="Runs mutated inputs; prints a line for each that is odd.")
    options.add_argument("--parser", choices=NAMES, required=True)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--count", type=int, required=True)
    options.add_argument("--write", help="write the first input to this file, and run none")
    chosen = options.parse_args()
    if chosen.write:
        Path(chosen.write).write_bytes(content(chosen.parser, chosen.first))
        return
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    with opened() as outer:
        for found in findings(outer, chosen.parser, chosen.first, chosen.count):
            sys.stdout.write(f"{found}\n")


if __name__ == "__main__":
    main()
