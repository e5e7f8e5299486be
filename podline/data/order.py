"""The order of examples and their random draws, as functions of integers.

Every random choice is a hash of (seed, purpose, epoch, id) by SplitMix64's finaliser (Steele, Lea, Flood: "Fast
splittable pseudorandom number generators", OOPSLA 2014), so it depends on no library's generator and no state: the same
on every host, in every version, after every restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from podline.recipes.epochs import Epochs

UInt64 = npt.NDArray[np.uint64]
Ids = npt.NDArray[np.int64]
_SORTED = 1 << 22  # with more ids, sorting them takes seconds and 39 bytes each: a Feistel network permutes them
_ROUNDS = 10  # of the Feistel network; with eight, the order of ten records is measurably uneven


def _mix(values: UInt64) -> UInt64:
    """SplitMix64's finaliser: a bijection of 64-bit integers in which every input bit moves every output bit."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def random_bits(seed: int, purpose: str, epoch: int, ids: npt.ArrayLike) -> UInt64:
    """Draw 64 random bits for each id, a non-negative integer: uint64, of the shape of ``ids``.

    ``purpose`` is what the bits are for ("order", "flip", …); two purposes share nothing, nor do two epochs.
    """
    digest = hashlib.blake2b(f"{seed}/{purpose}/{epoch}".encode(), digest_size=8).digest()
    key, counters = np.uint64(int.from_bytes(digest, "little")), np.asarray(ids).astype(np.uint64)
    with np.errstate(over="ignore"):
        return _mix(_mix(counters * np.uint64(0x9E3779B97F4A7C15) + key))


def random_uniform(seed: int, purpose: str, epoch: int, ids: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Draw a number in [0, 1) for each id: the top 53 of :func:`random_bits`."""
    return (random_bits(seed, purpose, epoch, ids) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def random_below(seed: int, purpose: str, epoch: int, ids: npt.ArrayLike, bound: int) -> npt.NDArray[np.int64]:
    """Draw an integer in [0, bound) for each id."""
    return (random_uniform(seed, purpose, epoch, ids) * bound).astype(np.int64)


def permutation(seed: int, purpose: str, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """Permute 0 … count-1: sort the ids by their random bits (ties, which are near impossible, by id)."""
    return np.argsort(random_bits(seed, purpose, epoch, np.arange(count)), kind="stable")


def shuffled(seed: int, purpose: str, count: int, places: Ids) -> Ids:
    """Return the ids at some places of a permutation of 0 … count-1; no other place is computed.

    A Feistel network permutes the numbers of as many bits as the ids need, which are fewer than twice as many as the
    ids. A number that is no id goes through it until one comes out (cycle-walking; Black and Rogaway: "Ciphers with
    arbitrary finite domains", CT-RSA 2002).
    """
    keys, bits = random_bits(seed, purpose, 0, np.arange(_ROUNDS)), (count - 1).bit_length()
    shift = np.uint64(bits // 2)
    high_mask, low_mask = np.uint64((1 << (bits - bits // 2)) - 1), np.uint64((1 << bits // 2) - 1)
    ids, outside = places.astype(np.uint64), np.arange(len(places))
    while len(outside):
        high, low = ids[outside] >> shift, ids[outside] & low_mask
        with np.errstate(over="ignore"):
            for even, odd in keys.reshape(-1, 2):
                low ^= _mix(high + even) & low_mask
                high ^= _mix(low + odd) & high_mask
        ids[outside] = high << shift | low
        outside = outside[ids[outside] >= count]
    return ids.astype(np.int64)


def permuted(seed: int, purpose: str, epoch: int, count: int, places: Ids) -> Ids:
    """Return the ids at some places of a permutation of 0 … count-1."""
    if count <= _SORTED:
        return permutation(seed, purpose, epoch, count)[places]
    return shuffled(seed, f"{purpose}/{epoch}", count, places)


def held_out(seed: int, count: int, share: float) -> Ids:
    """Return the ids, ascending, of a part of ``count`` examples that is not trained on: the lowest draws."""
    return np.sort(permuted(seed, "validation", 0, count, np.arange(round(share * count))))


def part_of(count: int, part: int, parts: int) -> Ids:
    """Return the ids, ascending, of one of several parts of ``count`` examples, the same for every run.

    Args:
        count: examples in the split.
        part: which, from 0.
        parts: how many there are; their sizes differ by one at most.
    """
    return np.sort(permuted(0, "parts", 0, count, np.arange(part, count, parts)))


@dataclass(frozen=True)
class _Classes:
    """Examples by class; each class has its own order, which repeats without end.

    Attributes:
        members: ids of the examples, those of a class side by side, int64 (count,).
        starts: the place of each class's first one, (classes,).
        sizes: how many each class has, (classes,).
    """

    members: Ids
    starts: Ids
    sizes: Ids

    def examples(self, places: Ids, first: int) -> tuple[Ids, Ids]:
        """Return the examples at some places of a run, of one class after the other, and how often each came before.

        Args:
            places: counted from the beginning of the run, (n,).
            first: the place from which on repeats are counted.
        """
        classes = places % len(self.sizes)
        rounds, turns = np.divmod(places // len(self.sizes), self.sizes[classes])
        before = -((classes - first) // len(self.sizes)) // self.sizes[classes]
        return self.members[self.starts[classes] + turns], rounds - before


class TrainingOrder:
    """The batches of a training run: each epoch is a fresh permutation, and its incomplete last batch is left out.

    Of millions of examples no array is made: a batch takes the memory of its own ids.

    Attributes:
        count: examples that are trained on.
        split_count: examples in their split.
        epochs: where epochs begin, and how large their batches are.
    """

    def __init__(
        self,
        count: int,
        batch_size: int,
        seed: int,
        without: Ids | None = None,
        first_epoch: int = 0,
        later_sizes: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Plan the order of a run.

        Args:
            count: examples in the split.
            batch_size: examples in a batch of the first epoch, over all replicas.
            seed: the run's.
            without: ids that are not trained on.
            first_epoch: the number of the first epoch, for a run that goes on with the data of an earlier one.
            later_sizes: (epoch from the run's beginning, batch size from then on), in order.

        Raises:
            ValueError: a batch is empty or larger than the epoch.
        """
        self.split_count = count
        apart = np.unique(np.empty(0, np.int64) if without is None else without)
        self._before_apart = apart - np.arange(len(apart))  # how many ids are trained on before each that is not
        self.count, self.batch_size, self.seed, self.first_epoch = count - len(apart), batch_size, seed, first_epoch
        self.epochs = Epochs(self.count, batch_size, later_sizes)
        self._latest = (-1, np.empty(0, np.int64))
        self._classes: _Classes | None = None

    @cached_property
    def ids(self) -> Ids:
        """The examples' ids in their split, ascending, int64 (count,)."""
        return self._ids(np.arange(self.count))

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in the first epoch."""
        return self.epochs.steps_per_epoch

    def balanced(self, labels: npt.NDArray[np.integer]) -> TrainingOrder:
        """Return an order whose epochs have equally many examples of each class, and as many steps as before.

        A run goes round the examples of each class, in an order of their own: all of them come equally often.

        Args:
            labels: the classes of :attr:`ids`, (count,).
        """
        by_class = np.lexsort((random_bits(self.seed, "balanced", 0, self.ids), labels))
        _, starts, sizes = np.unique(labels[by_class], return_index=True, return_counts=True)
        order = copy(self)
        order._latest, order._classes = (-1, np.empty(0, np.int64)), _Classes(self.ids[by_class], starts, sizes)
        return order

    def records(self, ids: Ids) -> Ids:
        """Return the positions in the split of examples of :meth:`batch`."""
        return ids % self.split_count

    def batch(self, step: int) -> tuple[int, Ids]:
        """Return the epoch of a step (counted from 0) and the ids of its examples, shape (batch_size,).

        Where a balanced order repeats an example within an epoch, its id is larger by :attr:`split_count` each time:
        random draws differ, and :meth:`records` has its position.

        Threads may share an order: one that is still in the old epoch never sees the new one's permutation.
        """
        place = self.epochs.place(step)
        epoch = self.first_epoch + place.epoch
        first = place.batch * place.batch_size
        return epoch, self._examples(epoch, np.arange(first, min(first + place.batch_size, self.count)))

    def partners(self, epoch: int, ids: Ids) -> Ids:
        """Draw an example of an epoch for each of others, ids of :meth:`batch`, (n,): the same in whatever batch."""
        return self._examples(epoch, random_below(self.seed, "partner", epoch, ids, self.count))

    def _examples(self, epoch: int, places: Ids) -> Ids:
        """Return the ids at some places of an epoch."""
        if self.count > _SORTED:
            return self._at(epoch, permuted(self.seed, "order", epoch, self.count, places))
        latest = self._latest
        if latest[0] != epoch:
            everywhere = permutation(self.seed, "order", epoch, self.count)
            self._latest = latest = (epoch, self._at(epoch, everywhere))
        return latest[1][places]

    def _at(self, epoch: int, places: Ids) -> Ids:
        """Return the ids at places before an epoch is permuted."""
        if self._classes is None:
            return self._ids(places)
        first = epoch * self.count
        ids, repeats = self._classes.examples(first + places, first)
        return ids + repeats * self.split_count

    def _ids(self, places: Ids) -> Ids:
        return places + np.searchsorted(self._before_apart, places, side="right")
