"""One rounding for each kind of quantity."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from podline.base import figures
from podline.documents.metric import Metric
from podline.recipes import measures


@pytest.mark.parametrize(
    ("name", "metric", "text"),
    [
        ("top1", Metric(value=0.8230088, low=0.7985, high=0.84502), "82.3 % [79.8, 84.5]"),
        ("calibration_error", Metric(value=0.0432, low=0.0432, high=0.0432), "4.3 %"),
        ("loss", Metric(value=2, low=2, high=2), "2.000"),
    ],
)
def test_a_metric_is_written_with_its_interval_where_one_is_known(name: str, metric: Metric, text: str) -> None:
    assert measures.metric_text(name, metric) == text


@pytest.mark.parametrize(
    ("write", "number", "text"),
    [
        # A duration never shows sixty of anything.
        (figures.duration, 0.0412, "0.04 s"),
        (figures.duration, 9.96, "10 s"),
        (figures.duration, 59.6, "1 min"),
        (figures.duration, 3599.7, "1 h"),
        (figures.duration, 11_520, "3 h 12 min"),
        (figures.size, 1, "1 byte"),
        (figures.size, 1000, "1.0 kB"),
        (figures.size, 999_960, "1.0 MB"),
        (figures.size, 24_846_000, "24.8 MB"),
        (figures.short_count, 412_310, "412,310"),
        (figures.short_count, 10.49e9, "10.5 billion"),
        (figures.short_count, 2.5e15, "2,500 trillion"),
        (figures.pflop, 1234.5, "1,234 PFLOP"),
        (figures.rounded, 0.00025, "0.00025"),
        (figures.rounded, -2.5e-6, "-0.0000025"),
        (figures.rounded, 123_456.7, "123,457"),
        (figures.rate, 0.512, "0.512"),
        (figures.rate, 1851.7, "1,852"),
        (figures.moment, 1_795_262_400, "21 November 2026, 12:00 UTC"),
    ],
)
def test_each_kind_of_quantity_has_one_rounding(write: Callable[[float], str], number: float, text: str) -> None:
    assert write(number) == text


@pytest.mark.parametrize("write", [figures.short_count, figures.rate, figures.pflop, figures.size, figures.rounded])
def test_no_number_near_a_power_of_ten_is_written_with_an_exponent_or_a_thousand_of_a_unit(
    write: Callable[[float], str],
) -> None:
    begin = 0 if write == figures.size else -5
    for number in (share * 10.0**power for power in range(begin, 15) for share in (0.9994, 0.9996, 0.99996, 1, 1.0006)):
        assert not re.search(r"e[+-]|1,?000(\.0)? [kMGmb]", write(number)), number
