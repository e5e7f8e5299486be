"""Reads lists of a large JSON object entry by entry, in constant memory.

What is read is what :func:`json.loads` reads, in the same encodings, but for whole numbers of more than 4,300 digits:
Python does not read them, and here they are infinite, like reals of more than 308.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Protocol

from podline.data.sources import bounds
from podline.data.sources.shown import shortened

_BLOCK = 1 << 20
_SPACES = " \t\n\r"
_NO_SPACE = re.compile(r"[^ \t\n\r]")
_MOST_DIGITS = 4_000
_KEY_LETTERS = 1_000
_PARTLY = 20  # letters of an escape, a number or a word that may be here in part
_PLAIN = json.JSONDecoder()
_LENIENT = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) < _MOST_DIGITS else float(digits))


class Stream(Protocol):
    """What is read from its beginning to its end."""

    def read(self, size: int, /) -> bytes: ...  # noqa: D102


class Entries:
    """The entries of some of an object's lists, in the file's order.

    Attributes:
        lists: the keys among those that are wanted whose values are lists.
    """

    def __init__(self, stream: Stream, wanted: Collection[str]) -> None:
        """Begins to read.

        Args:
            stream: a JSON document.
            wanted: keys of lists; what other keys have is passed over.
        """
        self.lists: set[str] = set()
        self._wanted, self._passed = wanted, 0
        self._stream = stream
        first = stream.read(_BLOCK)
        self._decoder = codecs.getincrementaldecoder(json.detect_encoding(first))("surrogatepass")
        self._text, self._at, self._before = self._decoder.decode(first), 0, 0
        self._ended = False

    def __iter__(self) -> Iterator[tuple[str, int, Any]]:
        """Reads the document to its end.

        Yields:
            A list's key, an entry's place in the list, the entry.

        Raises:
            ValueError: it is no JSON, no object, or out of :mod:`podline.data.sources.bounds`.
            RecursionError: it is nested too deeply.
        """
        self._expect("{")
        letter = self._next()
        if letter == "}":
            self._at += 1
        else:
            while letter != "}":
                key = self._key()
                if self._next() == "[" and key in self._wanted:
                    if key in self.lists:
                        raise self._error(f"a second list {shortened(key)}")
                    self._at += 1
                    self.lists.add(key)
                    for place, entry in enumerate(self._items()):
                        yield key, place, entry
                else:
                    self._value(bounds.ENTRY_LETTERS)
                letter = self._expect(",}")
        if self._next():
            raise self._error("something follows the document")

    def _key(self) -> str:
        if self._next() != '"':
            raise self._error("a key is needed")
        key = self._value(_KEY_LETTERS)
        self._count()
        self._expect(":")
        return key

    def _items(self) -> Iterator[Any]:
        if self._next() == "]":
            self._at += 1
            return
        letter = ","
        while letter == ",":
            yield self._value(bounds.ENTRY_LETTERS)
            self._count()
            letter = self._expect(",]")

    def _count(self) -> None:
        self._passed += 1
        if self._passed > bounds.FREE_ENTRIES and self._passed > (most := bounds.entries(self._before + self._at)):
            raise self._error(f"more than {most:,} entries")

    def _expect(self, letters: str) -> str:
        """One of some letters, which is passed."""
        letter = self._next()
        if not letter or letter not in letters:
            raise self._error(f"{' or '.join(letters)} is needed")
        self._at += 1
        return letter

    def _next(self) -> str:
        """The next letter that is no space; empty at the end."""
        while True:
            letter = self._text[self._at : self._at + 1]
            if letter and letter not in _SPACES:
                return letter
            found = _NO_SPACE.search(self._text, self._at)
            self._at = found.start() if found else len(self._text)
            if not found and not self._read_on():
                return ""

    def _value(self, most: int) -> Any:
        """The value that starts at the next letter, which has so many letters at most."""
        self._next()
        while True:
            value, end, problem = self._scanned()
            if end - self._at > most:
                raise self._error(f"an entry of more than {most:,} letters")
            # What ends where all ends that has been read may go on: a number, or what looks damaged.
            if self._ended or end < len(self._text) - _PARTLY * bool(problem):
                if problem:
                    raise self._error(problem, end)
                self._at = end
                return value
            self._read_on()

    def _scanned(self) -> tuple[Any, int, str]:
        """A value, where it ends, and nothing; or None, where the problem is, and which."""
        decoder = _PLAIN
        while True:
            try:
                return *decoder.raw_decode(self._text, self._at), ""
            except json.JSONDecodeError as error:
                # One of a string is where it begins, not where it ends.
                return None, len(self._text) if error.msg.startswith("Unterminated") else error.pos, error.msg
            except ValueError:  # a whole number that is too long
                decoder = _LENIENT

    def _read_on(self) -> bool:
        """Reads some more; says whether there is any."""
        if self._ended:
            return False
        block = self._stream.read(_BLOCK)
        self._ended = not block
        self._before += self._at
        self._text, self._at = self._text[self._at :] + self._decoder.decode(block, final=not block), 0
        return not self._ended

    def _error(self, what: str, at: int | None = None) -> ValueError:
        return ValueError(f"{what} at letter {self._before + (self._at if at is None else at):,}")
