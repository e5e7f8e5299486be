"""Averages a classifier's answers over views of each image."""

# pyright: standard
from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf


def over_views(model: Callable[..., tf.Tensor], views: int) -> Callable[..., tf.Tensor]:
    """Return a classifier that averages its answers over views of each image, one model call per view.

    Args:
        model: maps uint8 images (n, height, width, channels) to logits (n, classes).
        views: 2 averages over an image and its mirror image. 6 adds four views with a reflected border: the image moved
            down and right by a pixel, and up and left by a pixel, each also mirrored. The first two views weigh as much
            as these four. Jordan, K.: "94% on CIFAR-10 in 3.29 Seconds on a Single A100 GPU", 2024.
    """

    def both(images: tf.Tensor, **options: bool) -> tf.Tensor:
        return (model(images, **options) + model(tf.reverse(images, [2]), **options)) / 2

    def all_six(images: tf.Tensor, **options: bool) -> tf.Tensor:
        padded = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")
        shifted = both(padded[:, :-2, :-2], **options) + both(padded[:, 2:, 2:], **options)
        return both(images, **options) / 2 + shifted / 4

    return {2: both, 6: all_six}[views]
