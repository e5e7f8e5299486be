"""Changing valid inputs by chance: bytes, the fields of a format, and the values of a JSON document."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

LARGEST_INPUT = 10_000_000
_LARGE_SHARE = 0.01  # of the inputs are blown up to megabytes

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


def mutated(seeds: Sequence[bytes], words: Sequence[bytes], chance: random.Random) -> bytes:
    """One of some valid inputs, changed in one to eight places; one in a hundred is blown up to megabytes.

    Args:
        seeds: the valid inputs.
        words: what their format is made of.
        chance: decides.
    """
    content = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        chance.choice(_CHANGES)(content, words, seeds, chance)
    if chance.random() < _LARGE_SHARE:
        start = _place(content, chance)
        piece = bytes(content[start : start + chance.choice((1, 2, 4, 16, 64, 1024))]) or b"\0"
        if chance.random() < 0.5:
            piece = chance.choice(words)
        size = chance.choice((100_000, 1_000_000, LARGEST_INPUT)) - len(content)
        content[start:start] = piece * (size // len(piece))
    return bytes(content[:LARGEST_INPUT])


def document_mutated(content: bytes, chance: random.Random) -> bytes:
    """A JSON document with one to three values replaced, removed, or repeated, some of them very often."""
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


def _place(content: bytearray, chance: random.Random) -> int:
    """Where to change something: mostly near the ends, since most bytes between are pixels."""
    size, near = len(content), min(len(content), 400)
    return chance.choice((chance.randint(0, size), chance.randint(0, near), size - chance.randint(0, near)))


def _flip(content: bytearray, _words: Sequence[bytes], _seeds: Sequence[bytes], chance: random.Random) -> None:
    if content:
        content[_place(content, chance) - 1] ^= 1 << chance.randrange(8)


def _write(content: bytearray, start: int, chance: random.Random) -> None:
    """Puts a number that is often a limit."""
    size, order = chance.choice((1, 2, 4, 8)), chance.choice(("little", "big"))
    number = (chance.choice(_NUMBERS) + chance.choice((-1, 0, 1, len(content)))) % (1 << 8 * size)
    content[start : start + size] = number.to_bytes(size, order)


def _overwrite(content: bytearray, _words: Sequence[bytes], _seeds: Sequence[bytes], chance: random.Random) -> None:
    _write(content, _place(content, chance), chance)


def _field(content: bytearray, words: Sequence[bytes], _seeds: Sequence[bytes], chance: random.Random) -> None:
    """Changes a number that follows one of the format's words."""
    found = _found(content, words, chance)
    if found:
        start = chance.choice(found[1]) + len(found[0])
        _write(content, min(len(content), start + chance.randrange(48)), chance)


def _cut(content: bytearray, _words: Sequence[bytes], _seeds: Sequence[bytes], chance: random.Random) -> None:
    start = _place(content, chance)
    if chance.random() < 0.2:
        del content[start:]
    else:
        del content[start : start + chance.choice((1, 2, 8, 100))]


def _insert(content: bytearray, words: Sequence[bytes], _seeds: Sequence[bytes], chance: random.Random) -> None:
    start = _place(content, chance)
    content[start : start + chance.choice((0, 0, 1, 8))] = chance.choice((chance.choice(words), chance.randbytes(4)))


def _repeat(content: bytearray, _words: Sequence[bytes], _seeds: Sequence[bytes], chance: random.Random) -> None:
    start = _place(content, chance)
    piece = bytes(content[start : start + chance.choice((1, 10, 200))])
    content[start:start] = piece * chance.choice((1, 2, 100))


def _splice(content: bytearray, _words: Sequence[bytes], seeds: Sequence[bytes], chance: random.Random) -> None:
    other = chance.choice(seeds)
    content[_place(content, chance) :] = other[chance.randint(0, len(other)) :]


def _replace(content: bytearray, words: Sequence[bytes], _seeds: Sequence[bytes], chance: random.Random) -> None:
    """One of the format's words by another, where it stands."""
    found = _found(content, words, chance)
    if found:
        start = chance.choice(found[1])
        content[start : start + len(found[0])] = chance.choice(words)


def _found(content: bytearray, words: Sequence[bytes], chance: random.Random) -> tuple[bytes, list[int]] | None:
    """One of the format's words that is there, and where."""
    for word in chance.sample(words, min(8, len(words))):
        places, start = [], content.find(word)
        while start >= 0 and len(places) < 50:
            places.append(start)
            start = content.find(word, start + len(word))
        if places:
            return word, places
    return None


_Change = Callable[[bytearray, Sequence[bytes], Sequence[bytes], random.Random], None]
_CHANGES: Sequence[_Change] = (_flip, _overwrite, _field, _field, _cut, _insert, _repeat, _splice, _replace, _replace)
