"""Mutated inputs for every parser of files from strangers: small valid ones, changed by chance, as a seed says.

Input ``i`` of a parser is a function of the seed, the parser's name and ``i``, so any one can be made again:

    python tests/data/sources/mutated_inputs.py --parser pickle --first 17 --count 1

What comes out must be data or one of Podline's own errors, in one line, in bounded time and memory. Time is that of the
processor, so a busy machine changes nothing; memory is what the input takes at most beyond what was there before it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

from mutated_parsers import PARSERS, Parser  # noqa: E402 (they lie beside this file)

from podline.errors import PodlineError  # noqa: E402

SEED = 18
MAX_SECONDS = 2.0
MAX_BYTES = 300_000_000


class Finding(NamedTuple):
    """What an input did: its parser and number, its size, what it took, and what was wrong, if anything."""

    parser: str
    number: int
    size: int
    seconds: float
    memory: int
    problem: str


class Watched:
    """Runs inputs one after another in one folder."""

    def __init__(self, name: str, folder: Path, seed: int = SEED) -> None:
        self.name, self.folder, self.seed, self.parser = name, folder, seed, PARSERS[name]
        self.parser.prepare(folder)

    def content(self, number: int) -> bytes:
        return self.parser.input(random.Random(f"{self.seed}/{self.name}/{number}"))

    def run(self, number: int) -> Finding:
        content = self.content(number)
        before = _reset_peak()
        started = time.process_time()
        problem = _outcome(self.parser, self.folder, content)
        seconds, memory = time.process_time() - started, _peak() - before
        if not problem and seconds > MAX_SECONDS:
            problem = f"{seconds:.1f} s"
        if not problem and memory > MAX_BYTES:
            problem = f"{memory / 1e6:,.0f} MB"
        return Finding(self.name, number, len(content), seconds, memory, problem)


def _outcome(parser: Parser, folder: Path, content: bytes) -> str:
    """What was wrong with what came of an input; empty if nothing was."""
    try:
        parser.read(folder, content)
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


def _reset_peak() -> int:
    """Lets the kernel measure the peak of this process's memory anew; returns what it has now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(key: str) -> int:
    """A line of /proc/self/status in bytes; 0 where there is none."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    options = argparse.ArgumentParser(description="Runs mutated inputs; prints a line of JSON for each that is odd.")
    options.add_argument("--parser", choices=PARSERS, required=True)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--count", type=int, required=True)
    options.add_argument("--seed", type=int, default=SEED)
    options.add_argument("--write", help="write the first input to this file, and run none")
    chosen = options.parse_args()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # decoders warn of each damaged image
    with tempfile.TemporaryDirectory() as folder:
        watched = Watched(chosen.parser, Path(folder), chosen.seed)
        if chosen.write:
            Path(chosen.write).write_bytes(watched.content(chosen.first))
            return
        slowest = largest = Finding(chosen.parser, -1, 0, 0.0, 0, "")
        for number in range(chosen.first, chosen.first + chosen.count):
            _say(str(number))  # who is killed has said where
            found = watched.run(number)
            slowest = max(slowest, found, key=lambda one: one.seconds)
            largest = max(largest, found, key=lambda one: one.memory)
            if found.problem:
                _say(json.dumps(found))
        _say(json.dumps({"slowest": slowest, "largest": largest}))


if __name__ == "__main__":
    main()
