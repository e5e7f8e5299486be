"""Limits the share of a source that a conversion may leave out.

COCO as published stays below the limit, since images without people, crowds and people without a joint are converted.
Dead links or an incomplete download cost a few images in a hundred, which is acceptable. More than a tenth indicates a
missing folder, another file's annotations, or coordinates in another unit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from podline.base.errors import SourceError

_NAMED = 3


@dataclass
class LeftOut:
    """The records left out of one part of a source, such as a split.

    Attributes:
        what: the part's records, as a plural: ``images of person_keypoints_train2017.json``.
        read: number of records in the part.
        reasons: number of left-out records by reason.
    """

    what: str
    read: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    _alike: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, count: int = 1) -> None:
        """Count left-out records; reasons that differ only in numbers count as one reason."""
        if count:
            self.reasons[self._alike.setdefault(re.sub(r"\d+", "", reason), reason)] += count


def refuse_left_out(dataset: str, parts: Iterable[LeftOut], allowed: float) -> None:
    """Check that not more than the allowed share of any part of a source is left out.

    Args:
        dataset: name of the data set.
        parts: the counts of each part.
        allowed: the largest share, 0 … 1, of each part.

    Raises:
        SourceError: more records of a part are left out; the message has the counts by reason.
    """
    for part in parts:
        count = part.reasons.total()
        if not count or count / part.read <= allowed:  # this order: 0.29 * 100 is less than 29
            continue
        most = part.reasons.most_common()
        named = [f"{reason} ({times:,})" for reason, times in most[:_NAMED]]
        if len(most) > _NAMED:
            named.append(f"other reasons ({sum(times for _, times in most[_NAMED:]):,})")
        share = count / part.read
        raise SourceError(
            f"{dataset}: {count:,} of {part.read:,} {part.what} are left out, {share:.1%} vs {allowed:.1%} at most: "
            f"{', '.join(named)}; correct the source, or give --allow-left-out {-(-100 * count // part.read) / 100:g}"
        )
