"""One rounding for each kind of quantity."""

from __future__ import annotations

import pytest

from podline import figures
from podline.documents.metric import Metric


@pytest.mark.parametrize(
    ("name", "metric", "text"),
    [
        ("top1", Metric(value=0.8230088, low=0.7985, high=0.84502), "82.3 % [79.8, 84.5]"),
        ("top5", Metric(value=1, low=0.9962, high=1), "100.0 % [99.6, 100.0]"),
        ("calibration_error", Metric(value=0.0432, low=0.0432, high=0.0432), "4.3 %"),
        ("loss", Metric(value=0.5671, low=0.5159, high=0.6183), "0.567 [0.516, 0.618]"),
        ("loss", Metric(value=2, low=2, high=2), "2.000"),
    ],
)
def test_a_metric_is_written_with_its_interval_where_one_is_known(name: str, metric: Metric, text: str) -> None:
    assert figures.metric_text(name, metric) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0412, "0.04 s"),
        (0.996, "1.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (588.4, "9 min 48 s"),
        (3599.7, "1 h"),
        (11_520, "3 h 12 min"),
    ],
)
def test_a_duration_never_shows_sixty_of_anything(seconds: float, text: str) -> None:
    assert figures.duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(999, "999 bytes"), (1000, "1.0 kB"), (24_846_000, "24.8 MB"), (3_100_000_000, "3.1 GB")]
)
def test_a_size_is_decimal(number: int, text: str) -> None:
    assert figures.size(number) == text


@pytest.mark.parametrize(
    ("number", "text"), [(412_310, "412,310"), (3_504_872, "3.5 million"), (10.49e9, "10.5 billion"), (999, "999")]
)
def test_a_large_number_has_three_digits(number: float, text: str) -> None:
    assert figures.short_count(number) == text


@pytest.mark.parametrize(("number", "text"), [(0.1, "0.1"), (0.00025, "0.00025"), (1e-7, "1e-07"), (0.0, "0")])
def test_a_setting_keeps_its_digits(number: float, text: str) -> None:
    assert figures.rounded(number) == text


@pytest.mark.parametrize(("number", "text"), [(0.512, "0.512"), (98.76, "98.8"), (1851.7, "1,852")])
def test_a_rate_has_three_digits_or_all_before_the_point(number: float, text: str) -> None:
    assert figures.rate(number) == text


def test_a_moment_is_universal_time() -> None:
    assert figures.moment(1_795_262_400) == "21 November 2026, 12:00 UTC"
