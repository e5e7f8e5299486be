"""Mutated inputs for every parser of files from strangers: small valid ones, changed by chance, as a seed says.

Input ``i`` of a parser is a function of the seed, the parser's name and ``i``, so any one can be made again:

    python tests/data/sources/mutated_inputs.py --parser pickle --first 17 --count 1 --write input

What comes out must be data or one of Podline's own errors, in one line. All is read in one sandbox: those that the
readers start are called in it, with their own limits, so that thousands of inputs need one process.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "support")]

from hostile_files import KINDS  # noqa: E402 (it lies in a folder that was just added)
from mutation import document_mutated, mutated  # noqa: E402
from published import cifar10_batch, python3  # noqa: E402

from podline import entry_points, sandbox  # noqa: E402
from podline.errors import PodlineError  # noqa: E402
from podline.sandbox import Breach, Limits, Sandbox  # noqa: E402

SEED = 18
_OUTER = Limits(2 << 30, 120.0)
_BATCH = 20
# What formats are made of.
_ANY = [b"\0" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", b"PK\1\2", b",", b"\n", b'"', b"{", b"]", b"1e999", b"-1", b"../"]
_PICKLE = [
    *(bytes([code]) for code in b"(.0123FIJKLMNRSTUVXabcdeghijlopqrstu}])"),
    *(bytes([code]) for code in b"\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x93\x94\x95\x96"),
    b"cnumpy\ndtype\n", b"c_codecs\nencode\n", b"cos\nsystem\n", b"cnumpy\nndarray\n", b"h\0", b"h\1", b"q\0", b"q\1",
    b"cnumpy.core.multiarray\n_reconstruct\n", b"I" + b"9" * 5000 + b"\n", b"L" + b"9" * 5000 + b"L\n",
    b"\x8b\xb8\x0b\0\0" + b"\x7f" * 3000, b"U\6latin1", b"]r\xff\xff\xff\x7f", b"\x8c\3\xed\xa0\x80", b"labels", b"O8",
]  # fmt: skip
_TAR = [
    b"\0" * 512, b"ustar\x0000", b"x", b"g", b"L", b"K", b"S", b"5", b"../", b"data_batch_1", b"17 path=data_b\n",
    b"99999999999 size=1\n", b"20 GNU.sparse.map=0\n", b"77777777777\0", b"\x80" + b"\xff" * 11, b"\xff" * 12,
]  # fmt: skip
_ZIP = [
    b"PK\1\2",
    b"PK\3\4",
    b"PK\5\6",
    b"PK\6\6",
    b"\xff" * 8,
    b"\1\0\x10\0" + b"\xff" * 16,
    b"\x63\0",
    b"\0\x08",
    b".jpg",
]
_JSON = [
    *(bytes([code]) for code in b'[]{},:"'), b"null", b"NaN", b"1e999", b"9" * 5000, b"9223372036854775808",
    b'"\\ud800"',
    b"[" * 3000, b'"counts":', b'"segmentation":', b'"id":', b'"iscrowd":1', b'"oooooooo"', b'"images":[', b"   ",
]  # fmt: skip
_JPEG = [b"\xff" + bytes([code]) for code in b"\0\xc0\xc1\xc2\xc4\xc9\xd0\xd7\xd8\xd9\xda\xdb\xdc\xdd\xe0\xe1\xfe\xff"]
_PNG = [b"IHDR", b"IDAT", b"IEND", b"acTL", b"PLTE", b"tRNS", b"eXIf", b"\0\0\x1f\x40"]
_WORDS = {
    "pickle": _PICKLE, "pickled names": _PICKLE, "tar.gz": _TAR, "packed webdataset": _TAR, "webdataset": _TAR,
    "zipped annotations": _ZIP, "zipped images": _ZIP, "coco annotations": _JSON, "truth": _JSON, "jsonl": _JSON,
    "JPEG": _JPEG, "asked JPEG": [*_JPEG, b"\xff\xda\0\2"], "coco image": _JPEG, "PNG": _PNG, "asked PNG": _PNG,
}  # fmt: skip
_DOCUMENTS = ("coco annotations", "truth", "tfds features", "tfds info")
_PROTOCOLS = [python3(cifar10_batch("data_batch_2", 2), protocol) for protocol in range(6)]
NAMES = list(KINDS)


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


def _summed(tar: bytes) -> bytes:
    """Make the sums of a tar's headers right again, or most changes would end there."""
    made = bytearray(tar)
    for start in range(0, min(len(made), 100_000) - 511, 512):
        if made[start + 257 : start + 262] == b"ustar":
            made[start + 148 : start + 156] = b" " * 8
            made[start + 148 : start + 156] = b"%06o\0 " % sum(made[start : start + 512])
    return bytes(made)


def _checked(png: bytes) -> bytes:
    """Make the checksums of a PNG's chunks right again."""
    made, start = bytearray(png), 8
    while start + 12 <= len(made):
        end = start + 8 + int.from_bytes(made[start : start + 4], "big")
        made[end : end + 4] = zlib.crc32(made[start + 4 : end]).to_bytes(4, "big")
        start = end + 4
    return bytes(made[: len(png)])


class _Prepared(NamedTuple):
    """A valid source in a folder, and the file of it that is changed."""

    folder: Path
    file: Path
    seed: bytes
    kept: object


@functools.cache
def _prepared(name: str) -> _Prepared:
    kept = tempfile.TemporaryDirectory(prefix="podline-mutated-")
    source = Path(kept.name) / "source"
    source.mkdir()
    file = KINDS[name].write(source)
    return _Prepared(source, file, file.read_bytes(), kept)


def content(name: str, number: int) -> bytes:
    """Return an input."""
    chance, seed, words = random.Random(f"{SEED}/{name}/{number}"), _prepared(name).seed, _WORDS.get(name, _ANY)
    if name in _DOCUMENTS and chance.random() < 0.6:
        return document_mutated(seed, chance)
    if seed.startswith(b"\x1f\x8b") and chance.random() < 0.7:
        return gzip.compress(_summed(mutated([gzip.decompress(seed)], words, chance)), 1)
    made = mutated([seed, *(_PROTOCOLS if name == "pickle" else [])], words, chance)
    return _checked(made) if "PNG" in name and chance.random() < 0.8 else made


def runner() -> Callable[[tuple[str, int]], Finding]:
    """Return what reads an input; runs in a sandbox."""
    sandbox._Child = _Here

    def run(request: tuple[str, int]) -> Finding:
        return Finding(*request, _outcome(request[0], content(*request)))

    return run


def _outcome(name: str, data: bytes) -> str:
    """What was wrong with what came of an input; empty if nothing was."""
    prepared = _prepared(name)
    prepared.file.write_bytes(data)
    try:
        KINDS[name].read(prepared.folder, prepared.file)
    except PodlineError as error:
        try:
            str(error).encode()
        except UnicodeEncodeError:
            return f"an error that cannot be printed: {str(error)!r}"
        return f"an error of several lines: {str(error)!r}" if "\n" in str(error) else ""
    except Exception as error:
        places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
        return f"{type(error).__name__}: {str(error)[:200]} at {' '.join(places[-3:])}"
    finally:
        shutil.rmtree(prepared.folder.parent / "work", ignore_errors=True)
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
