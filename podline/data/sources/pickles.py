"""Reads pickles as data: arrays, bytes, strings, numbers and plain containers only.

A pickle is a program for a stack machine. Python's own ``Unpickler`` can be told which names it may import, but it
still calls them, allocates what a byte count claims, and hashes whatever nested thing is made a dictionary's key. This
reader has no way to import or call anything: ``numpy.dtype`` and the few other names that an array needs are tokens
here, whose arguments are checked and noted down. Work and memory are bounded by the file's size.

As a gift of the approach, long byte strings are not read at all: they become a :class:`Span`, a place in the file, from
which the pixels can be mapped later.

Protocols 0 to 5 are read, as Python 2 and 3 and NumPy 1 and 2 write them. The opcodes' arguments are parsed by the
standard library's ``pickletools``.
"""

from __future__ import annotations

import codecs
import io
import mmap
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from podline.data.sources import bounds
from podline.data.sources.pickled_arrays import (
    NDARRAY,
    RULES,
    DtypeNote,
    Name,
    PickledArray,
    Span,
    array_of,
    text_of,
)
from podline.data.sources.rawfiles import reading
from podline.data.sources.shown import printable
from podline.errors import SourceError

_REMEDY = "unpack the official archive again, or fetch it with `podline data download`"


def read_pickle(path: Path, shown: str = "") -> Any:
    """What a pickle holds.

    Args:
        path: an uncompressed pickle file.
        shown: what errors call it, if not by its path.

    Returns:
        None, bool, int, float, str, bytes, :class:`Span` (in place of long bytes), list, tuple, dict,
        :class:`PickledArray`. Byte strings that are a dictionary's keys are decoded: Python 2 wrote all keys so.

    Raises:
        SourceError: it is truncated or damaged, it holds something else than data, or it is out of proportion.
    """
    with reading(str(path)), path.open("rb") as stream:
        if not path.stat().st_size:
            raise SourceError(f"{shown or path} is empty: 0 bytes; {_REMEDY}")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Machine(data, shown or str(path)).run()


class _Machine:
    """The stack machine of one pickle."""

    def __init__(self, data: mmap.mmap, shown: str) -> None:
        self.data, self.shown, self.at = data, shown, 0
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks that marks have put aside
        self.memo: dict[int, Any] = {}
        self.made = 0  # bytes made of text

    def run(self) -> Any:
        limit = bounds.opcodes(len(self.data))
        try:
            for _ in range(limit):
                self.at = self.data.tell()
                opcode = self.data.read_byte()
                if opcode == _STOP:
                    return self._finish()
                argument, act = _ACTIONS.get(opcode) or self._unknown(opcode)
                act(self, argument(self.data) if argument else None)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
            # Whatever the machine stumbles over is the file's doing: it works on nothing else.
            if self.data.tell() >= len(self.data):
                raise self.error(f"the pickle ends early ({printable(error)})", self.data.tell()) from error
            raise self.error(f"the pickle is damaged ({type(error).__name__}: {printable(error)})") from error
        raise self.error(
            f"the pickle has more than {limit:,} opcodes in {len(self.data):,} bytes, which no data set needs"
        )

    def error(self, what: str, at: int | None = None) -> SourceError:
        """What is wrong with the file, and where in it."""
        place = f"at byte {self.at if at is None else at:,} of {len(self.data):,}"
        return SourceError(f"{self.shown}: {what}, {place}; {_REMEDY}")

    def refusal(self, what: str) -> SourceError:
        """What the file holds that could be code."""
        return self.error(f"the pickle asks for {what}, which is not data, and none of it was run")

    def _unknown(self, opcode: int) -> NoReturn:
        names = {ord(known.code): known.name for known in pickletools.opcodes}
        if opcode not in names:
            raise self.error(f"the pickle is damaged (no opcode {opcode:#04x})")
        raise self.refusal(f"the opcode {names[opcode]}")

    def _finish(self) -> Any:
        if self.data.tell() != len(self.data):
            raise self.error(f"{len(self.data) - self.data.tell():,} bytes follow the end of the pickle")
        (value,) = self.stack
        return value

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self, _argument: None) -> None:
        self.below.append(self.stack)
        self.stack = []

    def pop_mark(self) -> list[Any]:
        """What was pushed since the last mark."""
        items, self.stack = self.stack, self.below.pop()
        return items

    def long_bytes(self, size: int) -> None:
        """Pushes ``size`` bytes from here on: themselves if short, their place if long."""
        start = self.data.tell()
        if size < 0 or start + size > len(self.data):
            raise self.error(f"the pickle ends early: {size:,} bytes announced vs {len(self.data) - start:,} left")
        if size < bounds.PICKLE_WORD_BYTES:  # a key or a name
            self.push(self.data.read(size))
        else:
            self.data.seek(size, 1)
            self.push(Span(start, size))

    def store(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def fetch(self, place: int) -> None:
        self.push(self.memo[place])

    def append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise TypeError(f"items for a {type(target).__name__}")
        target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict:
            raise TypeError(f"keys for a {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_key(key)] = value

    def name(self, module: str, name: str) -> None:
        wanted = Name(module, name)
        if wanted not in RULES and wanted != NDARRAY:
            raise self.refusal(printable(f"{module}.{name}"))
        self.push(wanted)

    def call(self, _argument: None) -> None:
        """``REDUCE``: what a name makes of its arguments, by our own rules."""
        arguments, name = self.stack.pop(), self.stack.pop()
        if not isinstance(name, Name) or name not in RULES:
            raise self.refusal(
                f"a call of {name.module}.{name.name}" if isinstance(name, Name) else "a call of a value"
            )
        if type(arguments) is not tuple:
            raise TypeError(f"arguments in a {type(arguments).__name__}")
        made = RULES[name](*arguments)
        if type(made) is bytes:
            self.made += len(made)
            if self.made > len(self.data):
                raise self.error("the pickle makes more bytes than it has")
        self.push(made)

    def build(self, _argument: None) -> None:
        """``BUILD``: the state of an array or a dtype."""
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, PickledArray):
            _version, shape, dtype, fortran, data = state
            made = array_of(data, dtype, shape, "F" if fortran else "C")
            target.dtype, target.shape, target.fortran, target.data = made.dtype, made.shape, made.fortran, made.data
        elif isinstance(target, DtypeNote):
            order, *compound = state[1:5]
            if text_of(order) not in "<>|=" or any(part is not None for part in compound):
                raise ValueError("a dtype with fields")
            target.order = text_of(order)
        else:
            raise self.refusal(f"the state of a {type(target).__name__}")


def _key(key: Any) -> str | int:
    """A dictionary's key; nothing nested is ever hashed."""
    if type(key) is bytes:
        return text_of(key)
    if type(key) in (str, int):
        return key
    raise TypeError(f"a dictionary's key is a {type(key).__name__}")


def _line(data: mmap.mmap) -> bytes:
    line = data.readline()
    if not line.endswith(b"\n"):
        raise ValueError("a line is cut off")
    return line[:-1]


def _python2_string(data: mmap.mmap) -> bytes:
    """The argument of ``STRING``, protocol 0: Python 2's ``repr`` of a str, to the end of the line."""
    line = _line(data)
    if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1:] != line[:1]:
        raise ValueError("a string without its quotes")
    if not _PYTHON2_STRING.fullmatch(line, 1, len(line) - 1):
        raise ValueError("a string with an escape that Python 2 does not write")
    return codecs.escape_decode(line[1:-1])[0]


_PYTHON2_STRING = re.compile(rb"""(?:[^\\]++|\\[nrt\\'"]|\\x[0-9a-f]{2})*+""")


def _two_lines(data: mmap.mmap) -> tuple[str, str]:
    """The argument of ``GLOBAL`` and ``INST``: a module and a name in it."""
    return _line(data).decode("utf-8"), _line(data).decode("utf-8")


def _stack_name(machine: _Machine, _argument: None) -> None:
    name, module = text_of(machine.stack.pop()), text_of(machine.stack.pop())
    machine.name(module, name)


def _refuse_instance(machine: _Machine, argument: tuple[str, str]) -> None:
    raise machine.refusal(printable(".".join(argument)))


def _push_value(value: Any) -> Callable[[_Machine, Any], object]:
    return lambda machine, _argument: machine.push(value)


def _push_top(count: int) -> Callable[[_Machine, Any], object]:
    def act(machine: _Machine, _argument: None) -> None:
        items = tuple(machine.stack[-count:])
        if len(items) != count:
            raise IndexError("the stack is empty")
        machine.stack[-count:] = [items]

    return act


def _byte_count(width: int, signed: bool = False) -> Callable[[mmap.mmap], int]:
    """Reads a byte count in ``width`` little-endian bytes."""

    def count(data: mmap.mmap) -> int:
        field = data.read(width)
        if len(field) != width:
            raise ValueError("a byte count is cut off")
        return int.from_bytes(field, "little", signed=signed)

    return count


def _sized_bytes(width: int, signed: bool = False) -> tuple[Callable[[Any], Any], Callable[[_Machine, Any], object]]:
    """Reads a byte count, then the bytes."""
    return _byte_count(width, signed), lambda machine, size: machine.long_bytes(size)


def _sized_number(width: int) -> Callable[[mmap.mmap], int]:
    """Reads a byte count, then a whole number of so many bytes."""
    count = _byte_count(width)

    def number(data: mmap.mmap) -> int:
        size = count(data)
        if size > bounds.PICKLE_WORD_BYTES:
            raise ValueError(f"a number of {size:,} bytes")
        digits = data.read(size)
        if len(digits) != size:
            raise ValueError("a number is cut off")
        return int.from_bytes(digits, "little", signed=True)

    return number


def _short_line(read: Callable[[Any], Any]) -> Callable[[mmap.mmap], Any]:
    """Reads a number that is written out in digits, to the end of the line."""

    def number(data: mmap.mmap) -> Any:
        line = _line(data)
        if len(line) > bounds.PICKLE_WORD_BYTES:
            raise ValueError(f"a number of {len(line):,} digits")
        return read(io.BytesIO(line + b"\n"))

    return number


def _pushes(names: str) -> dict[str, Callable[[_Machine, Any], object]]:
    return dict.fromkeys(names.split(), _Machine.push)


def _nothing(_machine: _Machine, _argument: Any) -> None:
    """An opcode that says something about the file, not about the data."""


# What each opcode does; its argument is read as pickletools says.
_BY_NAME: dict[str, Callable[[_Machine, Any], object]] = {
    **_pushes("INT BININT BININT1 BININT2 LONG FLOAT BINFLOAT"),
    **_pushes("UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8"),
    "NONE": _push_value(None),
    "NEWTRUE": _push_value(True),
    "NEWFALSE": _push_value(False),
    "EMPTY_TUPLE": _push_value(()),
    "EMPTY_LIST": lambda machine, _argument: machine.push([]),
    "EMPTY_DICT": lambda machine, _argument: machine.push({}),
    "MARK": _Machine.mark,
    "TUPLE1": _push_top(1),
    "TUPLE2": _push_top(2),
    "TUPLE3": _push_top(3),
    "TUPLE": lambda machine, _argument: machine.push(tuple(machine.pop_mark())),
    "LIST": lambda machine, _argument: machine.push(machine.pop_mark()),
    "DICT": lambda machine, _argument: _push_dict(machine),
    "APPEND": lambda machine, _argument: machine.append([machine.stack.pop()]),
    "APPENDS": lambda machine, _argument: machine.append(machine.pop_mark()),
    "SETITEM": lambda machine, _argument: machine.set_items([machine.stack.pop(-2), machine.stack.pop()]),
    "SETITEMS": lambda machine, _argument: machine.set_items(machine.pop_mark()),
    "POP": lambda machine, _argument: machine.stack.pop() if machine.stack else machine.pop_mark(),
    "POP_MARK": lambda machine, _argument: machine.pop_mark(),
    "DUP": lambda machine, _argument: machine.push(machine.stack[-1]),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.store),
    "MEMOIZE": lambda machine, _argument: machine.store(len(machine.memo)),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.fetch),
    "STACK_GLOBAL": _stack_name,
    "REDUCE": _Machine.call,
    "BUILD": _Machine.build,
    "PROTO": _nothing,
    "FRAME": _nothing,
}


def _push_dict(machine: _Machine) -> None:
    items = machine.pop_mark()
    machine.push({})
    machine.set_items(items)


# By first byte: how to read the argument from the file (None: there is none), and what to do with it.
_ACTIONS: dict[int, tuple[Callable[[Any], Any] | None, Callable[[_Machine, Any], object]]] = {
    ord(opcode.code): (opcode.arg.reader if opcode.arg else None, _BY_NAME[opcode.name])
    for opcode in pickletools.opcodes
    if opcode.name in _BY_NAME
} | {
    # pickletools' own readers of text decode escapes, with warnings about strange ones.
    ord("S"): (_python2_string, _Machine.push),
    ord("c"): (_two_lines, lambda machine, argument: machine.name(*argument)),
    ord("i"): (_two_lines, _refuse_instance),
    ord("I"): (_short_line(pickletools.read_decimalnl_short), _Machine.push),
    ord("L"): (_short_line(pickletools.read_decimalnl_long), _Machine.push),
    ord("F"): (_short_line(pickletools.read_floatnl), _Machine.push),
    0x8A: (_sized_number(1), _Machine.push),  # LONG1
    0x8B: (_sized_number(4), _Machine.push),  # LONG4
    ord("U"): _sized_bytes(1),
    ord("T"): _sized_bytes(4, signed=True),
    ord("C"): _sized_bytes(1),
    ord("B"): _sized_bytes(4),
    0x8E: _sized_bytes(8),  # BINBYTES8
    0x96: _sized_bytes(8),  # BYTEARRAY8
}
_STOP = ord(".")
