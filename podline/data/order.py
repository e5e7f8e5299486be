"""The order of examples and their random draws, as pure functions of integers.

Every random choice is a hash of (seed, purpose, epoch, id) by SplitMix64's finaliser (Steele, Lea, Flood: "Fast
splittable pseudorandom number generators", OOPSLA 2014). It depends on no library and no state, so it is the same on
every host, in every version and after every restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from podline.base.arrays import Ids
from podline.recipes.epochs import Epochs

UInt64 = npt.NDArray[np.uint64]
_SORTED = 1 << 22  # above this number of ids a Feistel network permutes them; sorting takes seconds and 39 bytes each
_ROUNDS = 10  # of the Feistel network; with eight, the order of ten records is measurably uneven


def _mix(values: UInt64) -> UInt64:
    """Apply SplitMix64's finaliser, a bijection of 64-bit integers: every input bit affects every output bit."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def random_bits(seed: int, purpose: str, epoch: int, ids: npt.ArrayLike) -> UInt64:
    """Draw 64 random bits for each id, a non-negative integer: uint64, of the shape of ``ids``.

    ``purpose`` names the use of the bits ("order", "flip", …); different purposes and epochs give independent bits.
    """
    digest = hashlib.blake2b(f"{seed}/{purpose}/{epoch}".encode(), digest_size=8).digest()
    key, counters = np.uint64(int.from_bytes(digest, "little")), np.asarray(ids).astype(np.uint64)
    with np.errstate(over="ignore"):
        return _mix(_mix(counters * np.uint64(0x9E3779B97F4A7C15) + key))


def random_uniform(seed: int, purpose: str, epoch: int, ids: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Draw a float64 in [0, 1) for each id, of the shape of ``ids``: the upper 53 of :func:`random_bits`."""
    return (random_bits(seed, purpose, epoch, ids) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def random_below(seed: int, purpose: str, epoch: int, ids: npt.ArrayLike, bound: int) -> npt.NDArray[np.int64]:
    """Draw an integer in [0, bound) for each id: int64, of the shape of ``ids``."""
    return (random_uniform(seed, purpose, epoch, ids) * bound).astype(np.int64)


def permutation(seed: int, purpose: str, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """Return a random permutation of 0 … count-1, int64: the ids sorted by their random bits (equal bits: by id)."""
    return np.argsort(random_bits(seed, purpose, epoch, np.arange(count)), kind="stable")


def shuffled(seed: int, purpose: str, count: int, places: Ids) -> Ids:
    """Return the ids at the positions ``places`` of a random permutation of 0 … count-1, without computing the rest.

    A Feistel network permutes 0 … 2^b-1, for the smallest b with 2^b ≥ count. It is applied again to results of
    ``count`` or more (cycle-walking; Black and Rogaway: "Ciphers with arbitrary finite domains", CT-RSA 2002).
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
    """Return the ids at the positions ``places`` of a random permutation of 0 … count-1, of any length."""
    if count <= _SORTED:
        return permutation(seed, purpose, epoch, count)[places]
    return shuffled(seed, f"{purpose}/{epoch}", count, places)


def held_out(seed: int, count: int, share: float) -> Ids:
    """Return the ids, ascending, of the examples held out from training, chosen at random: ``round(share * count)``."""
    return np.sort(permuted(seed, "validation", 0, count, np.arange(round(share * count))))


def part_of(count: int, part: int, parts: int) -> Ids:
    """Return the ids, ascending, of one part of a random division of a split's examples, the same for every run.

    ``part`` counts from 0. The sizes of the parts differ by at most one.
    """
    return np.sort(permuted(0, "parts", 0, count, np.arange(part, count, parts)))


@dataclass(frozen=True)
class _Classes:
    """Examples by class; the examples of a class have a random order, which repeats endlessly.

    Attributes:
        members: ids of the examples, grouped by class, int64 (count,).
        starts: the position in ``members`` of each class's first example, (classes,).
        sizes: number of examples per class, (classes,).
    """

    members: Ids
    starts: Ids
    sizes: Ids

    def examples(self, places: Ids, first: int) -> tuple[Ids, Ids]:
        """Return examples of a sequence that takes classes in turn, and in which pass over its class each occurs.

        Args:
            places: positions in the sequence, which starts with the run, (n,).
            first: the position whose pass has the number 0.

        Returns:
            The ids of the examples and the numbers of their passes, (n,) each.
        """
        classes = places % len(self.sizes)
        rounds, turns = np.divmod(places // len(self.sizes), self.sizes[classes])
        before = -((classes - first) // len(self.sizes)) // self.sizes[classes]
        return self.members[self.starts[classes] + turns], rounds - before


class TrainingOrder:
    """The batches of a training run: each epoch is a new permutation without its incomplete last batch.

    Above 4 million examples, no array of all ids is made, unless the order is balanced: a batch takes only the memory
    of its own ids.

    Attributes:
        count: number of training examples.
        split_count: number of examples in the split, including held-out examples.
        epochs: the starts and batch sizes of the epochs.
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
            count: number of examples in the split.
            batch_size: number of examples in a batch of the first epoch, over all replicas.
            seed: seed of the run.
            without: ids of the examples held out from training; None for none.
            first_epoch: number of the first epoch; above 0 for a run that continues with the data of an earlier run.
            later_sizes: (epoch of the run, batch size from this epoch on), in order.

        Raises:
            ValueError: a batch is empty or larger than the epoch.
        """
        self.split_count = count
        apart = np.unique(np.empty(0, np.int64) if without is None else without)
        self._before_apart = apart - np.arange(len(apart))  # number of training ids before each held-out id
        self.count, self.batch_size, self.seed, self.first_epoch = count - len(apart), batch_size, seed, first_epoch
        self.epochs = Epochs(self.count, batch_size, later_sizes)
        self._latest = (-1, np.empty(0, np.int64))
        self._classes: _Classes | None = None

    @cached_property
    def ids(self) -> Ids:
        """The ids of the training examples in their split, ascending, int64 (count,)."""
        return self._ids(np.arange(self.count))

    @property
    def steps_per_epoch(self) -> int:
        """Number of whole batches in the first epoch."""
        return self.epochs.steps_per_epoch

    def balanced(self, labels: npt.NDArray[np.integer]) -> TrainingOrder:
        """Return an order with equally many examples of each class per epoch, and the same number of steps.

        A run cycles through the examples of each class in a separate order, so all examples of a class occur equally
        often.

        Args:
            labels: the class of each of :attr:`ids`, (count,).
        """
        by_class = np.lexsort((random_bits(self.seed, "balanced", 0, self.ids), labels))
        _, starts, sizes = np.unique(labels[by_class], return_index=True, return_counts=True)
        order = copy(self)
        order._latest, order._classes = (-1, np.empty(0, np.int64)), _Classes(self.ids[by_class], starts, sizes)
        return order

    def records(self, ids: Ids) -> Ids:
        """Return the position in the split of each id from :meth:`batch`, (n,)."""
        return ids % self.split_count

    def batch(self, step: int) -> tuple[int, Ids]:
        """Return the epoch of a step (counted from 0) and the ids of its examples, shape (batch_size,).

        If a balanced order repeats an example within an epoch, each repeat adds :attr:`split_count` to the id, so that
        random draws differ; :meth:`records` returns the position.

        Threads may share an order: a thread in the old epoch never uses the new epoch's permutation.
        """
        place = self.epochs.place(step)
        epoch = self.first_epoch + place.epoch
        first = place.batch * place.batch_size
        return epoch, self._examples(epoch, np.arange(first, first + place.batch_size))

    def partners(self, epoch: int, ids: Ids) -> Ids:
        """Draw a random example of the epoch for each id of :meth:`batch`, independent of the batch: ids, (n,)."""
        return self._examples(epoch, random_below(self.seed, "partner", epoch, ids, self.count))

    def _examples(self, epoch: int, places: Ids) -> Ids:
        """Return the ids at some positions of an epoch's shuffled examples."""
        if self.count > _SORTED:
            return self._at(epoch, permuted(self.seed, "order", epoch, self.count, places))
        latest = self._latest
        if latest[0] != epoch:
            everywhere = permutation(self.seed, "order", epoch, self.count)
            self._latest = latest = (epoch, self._at(epoch, everywhere))
        return latest[1][places]

    def _at(self, epoch: int, places: Ids) -> Ids:
        """Return the ids at some positions of an epoch's examples before they are shuffled."""
        if self._classes is None:
            return self._ids(places)
        first = epoch * self.count
        ids, repeats = self._classes.examples(first + places, first)
        return ids + repeats * self.split_count

    def _ids(self, places: Ids) -> Ids:
        return places + np.searchsorted(self._before_apart, places, side="right")
