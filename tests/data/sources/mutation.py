"""Changes to files by chance: to the whole, to bytes, and to the values of JSON documents."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

LARGEST_INPUT = 10_000_000
_LARGE_SHARE = 0.01  # of the inputs are blown up to megabytes


# To the whole file.
_DAMAGES: list[Callable[[bytes], bytes]] = [
    lambda _data: b"",
    lambda data: data[: len(data) // 2],
    lambda data: data[:-1],
    lambda data: bytes(len(data)),
    lambda data: data[:24] + bytes(100_000),
    lambda data: data * 2,
    lambda data: data[::2],
    lambda data: data + bytes(5_000_000),
    lambda data: data + b"[" * 5_000_000,
    lambda _data: b"[" + b"[]," * 2_000_000 + b"[]]",
    lambda _data: b"a," * 2_500_000,
    lambda _data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    lambda _data: gzip.compress(bytes(200_000_000), 1),
    lambda data: re.sub(rb"[0-9]+", b"9" * 30, data),
]
_NUMBERS = [0, 1, 2, 127, 128, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63]
_VALUES: list[Any] = [
    None, True, False, 0, 1, 2, -1, 0.5, 1e308, -1e308, float("nan"), float("inf"), 2**31, 2**53, 2**62, 2**63,
    2**64, 10**400, -(10**4000),
    "", "a", "\ud800", "\udcff.jpg", "\0", "..", "../x", "a/b", "a\nb", "\x1b[2J", "a" * 255, "ü" * 200, "x" * 5000,
    "000000000003.jpg", "oooooooo", "0",
    [], {}, [[]], [0], [1, 2, 3, 4, 5, 6], [[1, 2, 3, 4, 5, 6]], [[-1e12, 1e12, 3, 4, 5, 1e300]],
    {"size": [32, 48], "counts": "0"}, {"size": [32, 48], "counts": [1536]}, {"size": [], "counts": []},
    {"counts": [2**70, -(2**70)], "size": [32, 48]}, {"size": [32, 48], "counts": "P" * 9 + "0" * 9},
]  # fmt: skip
# What formats are made of.
_ANY = [b"\0" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", b"PK\1\2", b",", b"\n", b'"', b"{", b"]", b"1e999", b"-1", b"../"]
_WORDS = {
    "tar": [
        b"\0" * 512, b"ustar\x0000", b"x", b"g", b"L", b"K", b"S", b"5", b"../", b"data_batch_1", b"17 path=data_b\n",
        b"99999999999 size=1\n", b"20 GNU.sparse.map=0\n", b"77777777777\0", b"\x80" + b"\xff" * 11, b"\xff" * 12,
    ],
    "zip": [b"PK\1\2", b"PK\3\4", b"PK\5\6", b"PK\6\6", b"\xff" * 8, b"\1\0\x10\0" + b"\xff" * 16, b"c\0", b"\0\x08"],
    "json": [
        *(bytes([code]) for code in b'[]{},:"'), b"null", b"NaN", b"1e999", b"9" * 5000, b'"\\ud800"', b"   ",
        b"[" * 3000, b'"counts":', b'"segmentation":', b'"id":', b'"iscrowd":1', b'"oooooooo"', b'"images":[',
    ],
    "jpg": [b"\xff" + bytes([code]) for code in b"\0\xc0\xc1\xc2\xc4\xc9\xd0\xd7\xd8\xd9\xda\xdb\xdc\xdd\xe0\xe1\xfe"],
}  # fmt: skip
_ENDINGS = {"gz": "tar", "jpeg": "jpg", "jsonl": "json"}


def mutated(seed: bytes, ending: str, name: str) -> bytes:
    """Change a valid file by chance: as a whole, in a document's values, or in bytes, under gzip if it is packed.

    Args:
        seed: the file.
        ending: of its name; says the words that its format is made of.
        name: of the input; another one is another change.
    """
    chance = random.Random(f"18/{name}")
    if chance.random() < 0.1:
        return chance.choice(_DAMAGES)(seed)
    if ending == "json" and chance.random() < 0.6:
        return _document_mutated(seed, chance)
    words = _WORDS.get(_ENDINGS.get(ending, ending), _ANY)
    if seed.startswith(b"\x1f\x8b") and chance.random() < 0.7:
        return gzip.compress(_summed(_bytes_mutated(gzip.decompress(seed), words, chance)), 1)
    return _bytes_mutated(seed, words, chance)


def _bytes_mutated(seed: bytes, words: list[bytes], chance: random.Random) -> bytes:
    """Change one to eight places, half of them at one of the format's words."""
    made = bytearray(seed)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        near = min(len(made), 400)  # most bytes between are pixels
        start = chance.choice(
            (chance.randint(0, len(made)), chance.randint(0, near), len(made) - chance.randint(0, near))
        )
        known = made.find(chance.choice(words), chance.randint(0, len(made)))
        if known >= 0 and chance.random() < 0.5:
            start = known + chance.choice((0, 0, chance.randrange(48)))
        size, order = chance.choice((1, 2, 4, 8)), chance.choice(("little", "big"))
        number = (chance.choice(_NUMBERS) + chance.choice((-1, 0, 1, len(made)))) % (1 << 8 * size)
        piece = bytes(made[start : start + chance.choice((1, 10, 200))]) * chance.choice((1, 2, 100))
        inserted = chance.choice((b"", piece, chance.choice(words), chance.randbytes(1), number.to_bytes(size, order)))
        end = start + chance.choice((0, size, len(inserted), 100, len(made)))
        made[start:end] = inserted * (100_000 if chance.random() < _LARGE_SHARE else 1)
    return bytes(made[:LARGEST_INPUT])


def _document_mutated(content: bytes, chance: random.Random) -> bytes:
    """Replace, remove or repeat one to three values, some of them very often."""
    document = json.loads(content)
    for _ in range(chance.choice((1, 1, 2, 3))):
        holder, key = chance.choice(list(_places(document)))
        how = chance.random()
        if how < 0.6:
            holder[key] = json.loads(json.dumps(chance.choice(_VALUES)))
        elif how < 0.75:
            del holder[key]
        elif isinstance(holder, list):
            times = chance.choice((1, 2, 50)) if chance.random() > _LARGE_SHARE else chance.choice((3_000, 100_000))
            size = len(json.dumps(holder[key]))
            holder[key:key] = [holder[key]] * min(times, LARGEST_INPUT // (4 * size))
        else:
            holder[chance.choice(("id", "image_id", "extra", "counts"))] = holder[key]
        if not isinstance(document, dict | list) or not document:
            break
    return json.dumps(document).encode()[:LARGEST_INPUT]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every list and object in a value with each of its keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def _summed(tar: bytes) -> bytes:
    """Make the sums of a tar's headers right again, or most changes would end there."""
    made = bytearray(tar)
    for start in range(0, min(len(made), 100_000) - 511, 512):
        if made[start + 257 : start + 262] == b"ustar":
            made[start + 148 : start + 156] = b" " * 8
            made[start + 148 : start + 156] = b"%06o\0 " % sum(made[start : start + 512])
    return bytes(made)
