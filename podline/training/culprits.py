"""Finds the examples that make a batch fail, by group testing. Needs no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Examples that are looked for; a batch with more of them is named by these.
MOST = 32
# Examples spread over the batch that are tried by themselves: if each of them fails, the state is at fault, not they.
_TRIED = 8

Fails = Callable[[Sequence[int]], bool]


@dataclass(frozen=True)
class Culprits:
    """What the search found.

    Attributes:
        places: in the batch, of the examples that fail each by itself; the first :data:`MOST` at most.
        all_fail: every example that was tried fails by itself, so no example is the cause.
    """

    places: tuple[int, ...] = ()
    all_fail: bool = False


def find_culprits(count: int, fails: Fails) -> Culprits:
    """Looks for the examples of a failing batch that fail by themselves.

    With k of them among n examples it takes about 2 k log₂(n) tries.

    Args:
        count: how many examples the batch has.
        fails: whether the examples at some places fail when they are the batch.
    """
    spread = sorted({place * (count - 1) // max(_TRIED - 1, 1) for place in range(_TRIED)})
    if all(fails([place]) for place in spread):
        return Culprits(all_fail=True)
    found: list[int] = []
    _search(range(count), fails, found)
    return Culprits(tuple(found))


def _search(places: Sequence[int], fails: Fails, found: list[int]) -> None:
    """Adds the culprits among some places that fail together."""
    if len(places) == 1:
        found.append(places[0])
        return
    middle = len(places) // 2
    for half in (places[:middle], places[middle:]):
        if len(found) < MOST and fails(half):
            _search(half, fails, found)
