"""Draws the heatmaps and part affinity fields of one image."""

from __future__ import annotations

import colorsys
import io
from collections.abc import Iterable
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from podline.base.arrays import Image
from podline.documents.skeleton import Skeleton
from podline.kinds.pose.skeletons import colour_of

Floats = npt.NDArray[np.float32]

# Factor for the brightness of the image under the maps.
_DIMMED = 0.35
_HUES = np.array([colorsys.hsv_to_rgb(hue / 360, 0.85, 1) for hue in range(360)], np.float32)


class PoseMaps(NamedTuple):
    """The last heatmaps (height, width, joints) and fields (height, width, 2 × limbs) for one image, and the targets.

    Fields have 0 channels if the network has none (``subjects=one``).
    """

    heatmaps: Floats
    pafs: Floats
    wanted_heatmaps: Floats
    wanted_pafs: Floats


def maps_to_bytes(maps: PoseMaps) -> bytes:
    """Encode maps as an ``npz`` file in float16, which is precise enough for pictures."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{name: values.astype(np.float16) for name, values in maps._asdict().items()})
    return buffer.getvalue()


def maps_from_bytes(data: bytes) -> PoseMaps:
    """Decode the bytes of :func:`maps_to_bytes`.

    Raises:
        ValueError: the bytes are not an ``npz`` file.
        BadZipFile, zlib.error: the file is damaged.
        KeyError: a map is missing.
    """
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return PoseMaps(**{name: arrays[name].astype(np.float32) for name in PoseMaps._fields})


def heatmap_picture(image: Image, heatmaps: Floats, skeleton: Skeleton) -> Image:
    """Draw all heatmaps, (height, width, joints), over the dimmed image, each joint in its colour in skeletons."""
    colours = np.array([colour_of(name) for name in skeleton.joints], np.float32)
    return _over(image, (np.clip(heatmaps, 0, 1)[..., None] * colours).max(axis=-2))


def paf_picture(image: Image, pafs: Floats) -> Image:
    """Draw the strongest vector of each cell of the fields, (height, width, 2 × limbs), with its direction as hue."""
    vectors = pafs.reshape(*pafs.shape[:2], -1, 2)
    lengths = np.linalg.norm(vectors, axis=-1)
    strongest = lengths.argmax(axis=-1)[..., None]
    x, y = np.take_along_axis(vectors, strongest[..., None], axis=2)[:, :, 0].transpose(2, 0, 1)
    degrees = np.rint(np.degrees(np.arctan2(y, x))).astype(int) % 360
    strength = np.clip(np.take_along_axis(lengths, strongest, axis=2), 0, 1)
    return _over(image, 255 * _HUES[degrees] * strength)


def heatmap_panels(image: Image, heatmaps: Floats, skeleton: Skeleton) -> list[tuple[str, Image]]:
    """Return (joint name, small image with the joint's heatmap) for each joint."""
    return list(_panels(image, ((name, heatmaps[..., joint]) for joint, name in enumerate(skeleton.joints))))


def paf_panels(image: Image, pafs: Floats, skeleton: Skeleton) -> list[tuple[str, Image]]:
    """Return (names of the two joints, small image with the strength of the limb's field) for each limb."""
    lengths = np.linalg.norm(pafs.reshape(*pafs.shape[:2], -1, 2), axis=-1)
    named = ((f"{start} – {end}", lengths[..., limb]) for limb, (start, end) in enumerate(skeleton.limbs))
    return list(_panels(image, named))


def _panels(image: Image, maps: Iterable[tuple[str, Floats]]) -> Iterable[tuple[str, Image]]:
    small = cv2.resize(image, (image.shape[1] // 2, image.shape[0] // 2), interpolation=cv2.INTER_AREA)
    grey = np.asarray(cv2.cvtColor(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB), np.uint8)
    for name, values in maps:
        colour = np.array(colour_of(name.split(" – ")[-1]), np.float32)
        yield name.replace("_", " "), _over(grey, np.clip(values, 0, 1)[..., None] * colour)


def _over(image: Image, light: npt.NDArray[np.floating]) -> Image:
    """Blend RGB maps (height, width, 3) over the dimmed image; each cell covers a square of pixels."""
    height, width = image.shape[:2]
    spread = cv2.resize(light.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR)
    strength = spread.max(axis=-1, keepdims=True) / 255
    dimmed = image.astype(np.float32) * _DIMMED
    return np.clip(np.rint(dimmed * (1 - strength) + spread), 0, 255).astype(np.uint8)
