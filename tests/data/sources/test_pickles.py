"""A pickle gives data or one line; nothing in it is ever run."""

from __future__ import annotations

import pickle
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published import python2

from podline.base.errors import SourceError
from podline.data.sandbox.limits import ParseLimits
from podline.data.sandbox.pool import CALLER, Sandbox
from podline.data.sources.pickles import read_names, read_pickle

ROWS = np.arange(3 * 3072, dtype=np.uint32).astype(np.uint8).reshape(3, 3072)
BATCH: dict[str, Any] = {"batch_label": "training batch 1 of 5", "labels": [3, 1, 9], "data": ROWS}
_EVENTS: list[str] | None = None


def _watch(event: str, _arguments: tuple[Any, ...]) -> None:
    if _EVENTS is not None and event.partition(".")[0] in ("import", "os", "exec", "compile", "pickle", "subprocess"):
        _EVENTS.append(event)


sys.addaudithook(_watch)


@contextmanager
def nothing_runs() -> Iterator[None]:
    """Its body imports nothing, starts nothing and compiles nothing, as Python's own audit events say."""
    global _EVENTS  # noqa: PLW0603 (an audit hook can never be removed)
    _EVENTS = []
    try:
        yield
        assert _EVENTS == []
    finally:
        _EVENTS = None


def read(folder: Path, content: bytes) -> Any:
    path = folder / "pickled"
    path.write_bytes(content)
    return read_pickle(path)


def refused(folder: Path, content: bytes) -> str:
    with nothing_runs(), pytest.raises(SourceError) as caught:
        read(folder, content)
    message = str(caught.value)
    assert str(folder / "pickled") in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_python_3_protocol(tmp_path: Path, protocol: int) -> None:
    value = {
        "data": ROWS,
        b"labels": [0, 5, 2**40, -(2**70)],
        "array labels": np.array([1, 2, 3]),
        "big end": np.array([1.5, -2.0], ">f4"),
        "columns": np.asfortranarray(ROWS),
        "no rows": ROWS[:0],
        "values": (None, True, False, 1.25, "grün", b"", b"\xff\x00", ("a", ()), [[], {}], {1: "one"}),
    }
    found = read(tmp_path, pickle.dumps(value, protocol=protocol))
    assert list(found) == [key.decode() if isinstance(key, bytes) else key for key in value]
    for key in ("data", "array labels", "big end", "columns", "no rows"):
        np.testing.assert_array_equal(found[key], value[key], strict=True)
    assert found["labels"] == value[b"labels"]
    assert found["values"] == value["values"]


def test_python_2_text_protocol(tmp_path: Path) -> None:
    """What ``pickle.dump(batch, file)`` writes in Python 2, where protocol 0 is the default."""
    content = (
        b"(dp0\nS'labels'\np1\n(lp2\nI3\naI9\nasS'name'\np3\nS'a\\xff\\n\\\\x\\''\np4\n"
        b"sS'flag'\nI01\nsS'real'\nF0.5\ns."
    )
    assert read(tmp_path, content) == {"labels": [3, 9], "name": b"a\xff\n\\x'", "flag": True, "real": 0.5}


class _Runs:
    """Unpickled by Python itself, this makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_code_is_refused_and_does_not_run(tmp_path: Path, protocol: int) -> None:
    trap = tmp_path / "it ran"
    content = pickle.dumps({"data": ROWS, "labels": _Runs(trap)}, protocol=protocol)
    message = refused(tmp_path, content)
    assert "pathlib" in message or "getattr" in message
    assert "none of it was run" in message
    assert not trap.exists()
    pickle.loads(content)
    assert trap.exists(), "the trap does not work: this test would prove nothing"


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
DTYPE = b"cnumpy\ndtype\n(U\x02%sK\x00K\x01tR"
STATE = b"(K\x01%s" + DTYPE % b"u1" + b"\x89%stb."
HOSTILE = {
    "global": (b"cos\nsystem\n(S'touch ran'\ntR.", "os.system"),
    "instance": (b"(S'touch ran'\nios\nsystem\n.", "os.system"),
    "object": (b"(cos\nsystem\nS'touch ran'\no.", "os.system"),
    "by stack": (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "os.system"),
    "attribute by dots": (b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.", "numpy.ndarray.tofile"),
    "numpy's own loader": (b"cnumpy\nload\n(S'x'\ntR.", "numpy.load"),
    "persistent id": (b"Psomething\n.", "damaged"),
    "extension": (b"\x82\x01.", "damaged"),
    "state of a function": (b"c_codecs\nencode\n}b.", "damaged"),
    "attribute of a function": (b"c_codecs\nencode\nN}U\x01xK\x01s\x86b.", "damaged"),
    "call of the array type": (b"cnumpy\nndarray\n(J\xff\xff\xff\x7ftR.", "damaged"),
    "odd escapes": (b"cos\\u\nx\\q\n.", "os\\u.x\\q"),
    "terminal codes": (b"cos\x1b[2J\nx\n.", "os?[2J.x"),
    "object dtype": (DTYPE % b"O8" + b".", "dtype O8, expected plain numbers"),
    "compound dtype": (DTYPE % b"u1" + b"(K\x03U\x01|NU\x01xNtb.", "fields"),
    "more elements than bytes": (ARRAY + STATE % (b"M\xff\xff\x85", b"U\x02ab"), "needs 65535 bytes vs 2"),
    "negative size": (ARRAY + STATE % (b"J\xff\xff\xff\xff\x85", b"U\x00"), "tuple of up to four sizes"),
    "list of elements": (ARRAY + STATE % (b"K\x01\x85", b"]"), "an array has data of type list, expected bytes"),
    "another codec": (b"c_codecs\nencode\n(U\x01aU\x03zipt" + b"R.", "is encoded as zip"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_is_refused_by_what_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    content, told = HOSTILE[name]
    assert told in refused(tmp_path, content)
    assert not (tmp_path / "ran").exists()


TEXT = b"\x80\2V" + b"a" * 1_000_000 + b"\nq\0c_codecs\nencode\nq\1U\6latin1q\2"
BOMBS = {
    "text encoded again and again": TEXT + b"h\1h\0h\2\x86R" * 5_000 + b".",
    "memo index": b"]r\xff\xff\xff\x7f.",
    "byte count": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b".",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b".",
    "negative count": b"T" + struct.pack("<i", -5) + b".",
    "dictionaries": b"}" * 2_000_000 + b".",
    "doubling tuples": b")" + b"2\x86" * 500_000 + b".",
    "a deep key": b"}" + b")" + b"\x85" * 15_000 + b"Ns.",
    "a deep name": b")" + b"\x85" * 15_000 + b")R.",
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """One for all bombs: it starts a child again only where one ended it."""
    with Sandbox(CALLER, read_names) as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_end_in_one_line(tmp_path: Path, sandbox: Sandbox, name: str) -> None:
    path = tmp_path / "pickled"
    path.write_bytes(BOMBS[name])
    with suppress(SourceError):
        sandbox.one((read_names, path, ["label_names"]), ParseLimits(64_000_000, 1.0), str(path))
        assert name in ("memo index", "dictionaries", "a deep key")  # harmless


def test_every_truncation_is_told(tmp_path: Path) -> None:
    content = python2({"labels": [1, 2], "names": ["a", "b"], "data": ROWS[:, :100].copy()})
    for length in range(len(content)):
        message = refused(tmp_path, content[:length])
        assert "ends early" in message or "is empty" in message, (length, message)
    assert "3 bytes follow the end" in refused(tmp_path, content + b"abc")


SEEDS = [python2({"labels": [1, 2], "data": ROWS[:1]}), *(pickle.dumps(BATCH, protocol=p) for p in range(6))]
FRAGMENTS = [b"cos\nsystem\n", b"cposix\nsystem\n", b"\x81", b"\x93", *(bytes([code]) for code in b"Rbo(t.iQ2")]


@settings(deadline=None)  # a busy machine is no failure
@given(
    seed=st.sampled_from(SEEDS),
    edits=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 3), st.sampled_from(FRAGMENTS) | st.binary()),
        min_size=1,
        max_size=8,
    ),
    near_ends=st.booleans(),
)
def test_mutated_pickles_give_data_or_a_source_error(
    tmp_path_factory: pytest.TempPathFactory, seed: bytes, edits: list[tuple[float, int, bytes]], near_ends: bool
) -> None:
    content = bytearray(seed)
    for place, cut, inserted in edits:
        # Most bytes are pixels, which say nothing; what matters lies near both ends.
        start = int(place * 400) - 200 if near_ends else int(place * len(content))
        start %= max(len(content), 1)
        content[start : start + cut] = inserted
    path = tmp_path_factory.getbasetemp() / "mutated"
    path.write_bytes(content)
    with nothing_runs(), suppress(SourceError, MemoryError):
        read_pickle(path)
