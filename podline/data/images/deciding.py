"""Decides, from what each image is, which split it is of and what is left out.

Nothing here depends on a layout, on names or on the order of images, but for the words of a reason.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from podline.data.images.items import HELD_OUT, SPLITS, TEST, TRAIN, test_split_of
from podline.data.shown import printable, shortened
from podline.data.sources.class_names import problem_of
from podline.data.sources.duplicates import MAX_SHARED
from podline.errors import SourceError

_REMEDY = "the evaluation would lie inside the training set; get splits that are apart, or give the images without any"


class Seen(NamedTuple):
    """An image that was looked at, or what lies among images.

    Attributes:
        key: what leads back to it.
        label: its class; None where it has none.
        split: as the source says it, in small letters; empty where it says none.
        group: images of one group stay on one side; empty where there is none.
        row: the number of its pixels; -1 of one that was not looked at.
        sha256: of its bytes, hexadecimal.
        pixels: the sha256 of its pixels.
        bytes: its size.
        width: of the picture.
        height: likewise.
        turned: whether EXIF turns it.
        stray: whether it was never meant to be an image.
        reason: why it is left out; empty so far if it is not.
    """

    key: str
    label: str | None
    split: str
    group: str
    row: int
    sha256: str
    pixels: str
    bytes: int
    width: int
    height: int
    turned: bool
    stray: bool
    reason: str


@dataclass
class Decided:
    """Images with their splits.

    Attributes:
        seen: all of them.
        splits: of each, train or test.
        reasons: why each is left out; empty if it is not.
    """

    seen: list[Seen]
    splits: list[str]
    reasons: list[str] = field(init=False)

    def __post_init__(self) -> None:
        """Begins with what is known before images are compared."""
        self.reasons = [one.reason for one in self.seen]

    def kept(self, split: str | None = None) -> list[int]:
        """Return the images that are not left out, of one split or of both."""
        return [
            at for at, reason in enumerate(self.reasons) if not reason and (split is None or self.splits[at] == split)
        ]

    def leave_out(self, places: Iterable[int], reason: Callable[[int], str]) -> None:
        """Leaves out some images."""
        for at in places:
            self.reasons[at] = reason(at)

    def by_pixels(self) -> list[list[int]]:
        """Images that are kept and look the same, in groups of two at least."""
        groups: dict[str, list[int]] = defaultdict(list)
        for at in self.kept():
            groups[self.seen[at].pixels].append(at)
        return [group for group in groups.values() if len(group) > 1]

    def twin(self, one: int, other: int) -> str:
        """How two images that look the same are, in words."""
        what = "file" if self.seen[one].sha256 == self.seen[other].sha256 else "image"
        return f"the same {what} as {printable(self.seen[other].key)}"


def in_general(reason: str) -> str:
    """Return a reason without the other image's name."""
    return re.sub(r"^the same (file|image) as .*(, which is .*| of the test split)$", _general, reason)


def _general(found: re.Match[str]) -> str:
    return "the same image as one of another class" if "," in found[2] else "the same image as one of the test split"


def decide(seen: list[Seen], given: frozenset[str], test_share: float) -> Decided:
    """Return splits and reasons.

    Args:
        seen: all images.
        given: the splits that the source has, by its own names.
        test_share: of images whose split nobody gives.

    Raises:
        SourceError: a class's name cannot be one, or more test images than :data:`MAX_SHARED` can be trained on.
    """
    seen = [_with_own_reason(one) for one in seen]
    _refuse_names({one.label for one in seen if one.label is not None and not one.reason})
    test = test_split_of(given)
    decided = Decided(seen, [_split_of(one, test, test_share) for one in seen])
    _leave_out_contradicting(decided)
    _leave_out_shared(decided, test)
    _leave_out_groups(decided)
    _leave_out_unknown(decided)
    return decided


def _with_own_reason(one: Seen) -> Seen:
    if one.reason:
        return one
    if one.label is None or not one.label:
        return one._replace(reason="has no class")
    if one.split and one.split not in SPLITS:
        return one._replace(reason=f"is of the split {shortened(one.split)} vs {TRAIN} or {', '.join(HELD_OUT)}")
    return one


def _refuse_names(labels: set[str]) -> None:
    for label in sorted(labels):
        problem = problem_of(label)
        if problem:
            raise SourceError(f"the class name {shortened(label)} {problem}; rename the class")


def _split_of(one: Seen, test: str, test_share: float) -> str:
    """As the source says it, else by a hash of the image's group, or of the image itself."""
    if one.split and test:
        return TEST if one.split == test else TRAIN
    if not one.sha256 or one.label is None:
        return TRAIN
    sha256 = hashlib.sha256(one.group.encode("utf-8", "surrogatepass")).hexdigest() if one.group else one.sha256
    return TEST if int(sha256[:16], 16) < test_share * 2**64 else TRAIN


def _leave_out_contradicting(decided: Decided) -> None:
    for group in decided.by_pixels():
        first = group[0]
        second = next((at for at in group if _label(decided, at) != _label(decided, first)), None)
        if second is None:
            continue
        named = {at: shortened(_label(decided, at)) for at in (first, second)}
        for at in group:  # each with the first image of another class
            other = second if _label(decided, at) == _label(decided, first) else first
            decided.reasons[at] = f"{decided.twin(at, other)}, which is {named[other]}"


def _leave_out_shared(decided: Decided, test: str) -> None:
    """Leaves out training images that the test split has too."""
    shared = []
    for group in decided.by_pixels():
        of_test = [at for at in group if decided.splits[at] == TEST]
        of_train = [at for at in group if decided.splits[at] == TRAIN]
        if of_test and of_train:
            shared += of_test
            decided.leave_out(of_train, lambda at, first=of_test[0]: f"{decided.twin(at, first)} of the test split")
    count = len(decided.kept(TEST))
    if test and len(shared) > MAX_SHARED * count:
        first = printable(decided.seen[shared[0]].key)
        raise SourceError(
            f"{len(shared):,} of the {count:,} test images ({first}, for one) are training images as well vs "
            f"{MAX_SHARED:.0%} at most: {_REMEDY}"
        )


def _leave_out_groups(decided: Decided) -> None:
    """Leaves out training images of a group that the test split has too: possible where the source gives splits."""
    groups = {decided.seen[at].group for at in decided.kept(TEST)} - {""}
    torn = [at for at in decided.kept(TRAIN) if decided.seen[at].group in groups]
    decided.leave_out(torn, lambda at: f"is of the group {shortened(decided.seen[at].group)}, as images to test on")


def _leave_out_unknown(decided: Decided) -> None:
    """Leaves out test images of a class that no training image has."""
    trained = Counter(_label(decided, at) for at in decided.kept(TRAIN))
    unknown = [at for at in decided.kept(TEST) if _label(decided, at) not in trained]
    decided.leave_out(
        unknown, lambda at: f"is of the class {shortened(_label(decided, at))}, which no training image is"
    )


def _label(decided: Decided, at: int) -> str:
    return decided.seen[at].label or ""
