from __future__ import annotations

import numpy as np
from ledger_entries import night
from matplotlib import image as images

from podline.ledger_entry import Waiting
from podline.reporting import nights
from podline.reporting.ledger import frame_of
from podline.reporting.nights import picture


def height(tmp_path, *entries) -> int:
    """Of the picture, in pixels; it is not blank."""
    file = tmp_path / "nights.png"
    file.write_bytes(picture(frame_of(entries)))
    pixels = images.imread(file)
    assert np.unique(pixels).size > 10
    return len(pixels)


def test_a_picture_has_a_chart_for_whatever_there_is(tmp_path):
    one = height(tmp_path, night(0, state="failed", data=None))
    assert height(tmp_path, night(0, state="failed")) == 2 * one
    assert height(tmp_path, night(0)) == 4 * one
    assert height(tmp_path, night(0), night(1, state="failed"), night(2, waiting=Waiting(tpu=500.0))) == 4 * one


def test_recipes_are_drawn_apart(monkeypatch):
    drawn = []

    def png(draw, width, height):
        figure = nights.Figure(figsize=(width, height))
        draw(figure)
        drawn.append(figure)
        return b""

    monkeypatch.setattr(nights, "png", png)
    picture(frame_of([night(0), night(1, recipe="mnist"), night(2)]))
    metric, speed, *_ = drawn[0].axes
    labels = metric.get_legend_handles_labels()[1]
    assert labels == ["cifar10", "mnist"]
    assert metric.get_ylabel() == "accuracy"
    [line] = speed.get_lines()
    assert len(line.get_xdata()) == 3
