"""Formats numbers for people, with one rounding rule per kind of quantity.

A share and its interval are rounded to the same digit, like ``82.3 % [79.9, 84.5]``, so that no figure looks more exact
than its interval allows. Commas separate thousands.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

from podline.base.plurals import plural


def percent(share: float) -> str:
    """Format a share as a percentage: ``82.3 %``."""
    return f"{100 * share:.1f} %"


def arrow(change: str) -> str:
    """Return ▲ or ▼ for a change formatted by :func:`podline.recipes.measures.change_text`; empty for zero."""
    return "" if not change.strip("+\N{MINUS SIGN}0. points") else "▲" if change.startswith("+") else "▼"


def short_moment(unix_time: float) -> str:
    """Format a Unix time in UTC so that texts sort by time: ``2026-11-21 03:14``."""
    return f"{datetime.fromtimestamp(unix_time, UTC):%Y-%m-%d %H:%M}"


def day(unix_time: float) -> str:
    """Format a day in UTC briefly: ``21 Nov``."""
    when = datetime.fromtimestamp(unix_time, UTC)
    return f"{when.day} {when:%b}"


def date(unix_time: float) -> str:
    """Format a day in UTC with its year: ``21 Nov 2026``."""
    return f"{day(unix_time)} {datetime.fromtimestamp(unix_time, UTC):%Y}"


def count(number: int) -> str:
    """Format an integer: ``50,000``."""
    return f"{number:,}"


def short_count(number: float) -> str:
    """Format a number from a million on with three significant digits: ``4.12 million``; below, as an integer."""
    if round(number) < 10**6:
        return count(round(number))
    shown = float(f"{number:.3g}")
    unit, name = next(each for each in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")) if shown >= each[0])
    return f"{rounded(shown / unit, 3)} {name}"


def rate(number: float) -> str:
    """Format a rate per second: three significant digits below 100, else a rounded integer."""
    return rounded(number, 3)


def pflop(number: float) -> str:
    """Format a number of petaFLOP with three significant digits: ``0.515 PFLOP``; 0 means unknown."""
    return f"{rounded(number, 3)} PFLOP" if number else "PFLOP not known"


def size(number: int) -> str:
    """Format bytes in decimal units: ``24.8 MB``."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if number >= max(1000, 0.99995 * unit):  # 999,950 bytes are rounded to 1.0 MB
            return f"{number / unit:,.1f} {name}"
    return plural(number, "byte")


def duration(seconds: float) -> str:
    """Format a duration: ``0.04 s``, ``4.2 s``, ``42 s``, ``9 min 48 s``, ``20 min``, ``3 h 12 min``."""
    if seconds < 0.995:
        return f"{seconds:.2f} s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes_left, "min"), (0 if hours else rest, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def moment(unix_time: float) -> str:
    """Format a time in UTC: ``21 November 2026, 03:14 UTC``."""
    when = datetime.fromtimestamp(unix_time, UTC)
    return f"{when.day} {when:%B %Y, %H:%M} UTC"


def rounded(number: float, digits: int = 4) -> str:
    """Format a number with some significant digits, an integer with all; scientific notation only below 1e-6."""
    if number == 0 or not math.isfinite(number):
        return f"{number:g}"
    text = f"{number:.{digits}g}"
    if "e" not in text or abs(float(text)) < 1e-6:
        return text
    return f"{number:,.0f}" if abs(number) > 1 else f"{float(text):.10f}".rstrip("0")
