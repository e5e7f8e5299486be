"""Spec and result of the decoder's ceiling: what maps and decoder lose before any training."""

from __future__ import annotations

from pydantic import Field

from podline.figures import count, percent
from podline.frozen import Frozen
from podline.recipes.pose_settings import DecodingSettings, PoseTargetSettings
from podline.stages.specs import Result, Spec, Where

LARGEST = 100_000
"""A root of an area that nobody reaches: the end of the last row."""


class CeilingSpec(Spec):
    """Targets are drawn from people in truth, decoded again, and held against the same people."""

    truths: tuple[str, ...] = Field(min_length=1, description="COCO annotation files that are judged as one")
    side: int = Field(ge=32, le=4096, description="of the network's input, in pixels")
    targets: PoseTargetSettings
    decoding: DecodingSettings


class CeilingRow(Frozen):
    """People of one size.

    Attributes:
        low: the least root of their area at the network's input, in pixels.
        high: the largest.
        people: how many.
        ap: average precision with all other people ignored, -1 where there is nobody.
        oks: mean over people of the best OKS that any person found has with them, 0…1. What is missing from 1:
        merged: joints that lie within two cells of another person's same joint: their peaks bend or become one.
        detached: other joints that were put together with nobody or with somebody else.
        inexact: other joints that are where they should be, but not quite.
    """

    low: float
    high: float
    people: int
    ap: float
    oks: float
    merged: float
    detached: float
    inexact: float


class DecodingCeiling(Result):
    """The decoder's ceiling over all people with at least 5 joints and 32 × 32 pixels, and by size."""

    total: CeilingRow
    by_size: tuple[CeilingRow, ...]

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return a table."""
        row = "{:>12} {:>7} {:>7} {:>7} {:>8} {:>9} {:>8}".format
        rows = [row("root of area", "people", "AP", "OKS", "merged", "detached", "inexact")]
        for entry in (*self.by_size, self.total):
            size = "all" if entry is self.total else _range(entry)
            figures = ["–"] * 5
            if entry.people:
                losses = (percent(lost) for lost in (entry.merged, entry.detached, entry.inexact))
                figures = [f"{entry.ap:.3f}", f"{entry.oks:.3f}", *losses]
            rows.append(row(size, count(entry.people), *figures))
        return [
            *rows,
            "",
            "AP with everybody else ignored; OKS is the mean of the best found for each person. What it lacks:",
            "merged    joints within two cells of another person's same joint: their peaks bend or become one",
            "detached  joints that were put together with nobody, or with somebody else",
            "inexact   joints that are where they should be, but not quite",
        ]


def _range(row: CeilingRow) -> str:
    return f"{row.low:g}–{row.high:g} px" if row.high < LARGEST else f"from {row.low:g} px"
