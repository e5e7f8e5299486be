"""Augments images together with their people: mirrors, rotates, scales, shifts and recolours them.

All geometric changes of an example are one affine map, so its image is resampled once, and the same map moves joints,
boxes and masks. All colour changes are one matrix. Maps are in pixels; an integer is a pixel's centre. An example's
random values depend on the seed, the epoch and its id (:mod:`podline.data.order`), but not on its batch.

The code uses NumPy and OpenCV on the host; images stay uint8.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from podline.base.arrays import Array, Arrays, Floats, Pixels
from podline.base.errors import SettingsError
from podline.data.people.image import MASK_STRIDE
from podline.documents.manifest import Manifest
from podline.documents.skeleton import Skeleton
from podline.input.augmentation import resized, with_installed
from podline.input.chance import Chance
from podline.input.colours import draw_colours, recoloured
from podline.kinds.pose.settings import PoseAugmentationSettings, PoseSettings
from podline.recipes.settings import Recipe

_CORNERS = np.array([(0, 0), (1, 0), (0, 1), (1, 1)])


def augmented(
    arrays: Arrays,
    ids: npt.ArrayLike,
    settings: PoseAugmentationSettings,
    seed: int,
    epoch: int,
    manifest: Manifest,
) -> dict[str, Array]:
    """Return an augmented copy of a batch; pixels from outside an image get the mean colour of the training split.

    The arrays are ``keypoints`` float32 (n, people, joints, 3) and ``ignored`` uint8 (n, m, m); optionally, ``image``
    uint8 (n, side, side, 3), RGB, and ``boxes`` float32 (n, people, 4). Other arrays are returned as they are.
    """
    changed, chance, side = dict(arrays), Chance(seed, epoch, ids), MASK_STRIDE * arrays["ignored"].shape[1]
    colours = draw_colours(chance.named("pose "), **settings.colours) if settings.colours else None
    if settings.moves:
        may_flip = settings.flip if settings.flip is not None else manifest.skeleton.mirrored is not None
        maps, flips = draw_maps(chance, settings.changed(flip=may_flip), side)
        if "image" in arrays:
            changed["image"] = moved_images(arrays["image"], maps, manifest.mean_colour, colours)
        changed["keypoints"] = moved_joints(arrays["keypoints"], maps, flips, side, manifest.skeleton)
        changed["ignored"] = moved_masks(arrays["ignored"], maps, side)
        if "boxes" in arrays:
            changed["boxes"] = moved_boxes(arrays["boxes"], maps, side)
    elif colours is not None and "image" in arrays:
        changed["image"] = recoloured(arrays["image"], colours)
    changed = with_installed(changed, settings.also, chance)
    return scaled(changed, side, settings.image_size) if settings.image_size else changed


def scaled(arrays: Arrays, side: int, new_side: int) -> dict[str, Array]:
    """Scale images, joints, boxes and masks from ``side`` to ``new_side`` pixels; a mask's cells keep their size."""
    factor = new_side / side
    cells = round(factor * arrays["ignored"].shape[1])
    keypoints = arrays["keypoints"].copy()
    keypoints[..., :2] = ((keypoints[..., :2] + 0.5) * factor - 0.5) * (keypoints[..., 2:] > 0)
    changed = {**arrays, "keypoints": keypoints, "ignored": resized(arrays["ignored"], (cells, cells))}
    if "image" in arrays:
        changed["image"] = resized(arrays["image"], (new_side, new_side, 3))
    if "boxes" in arrays:
        changed["boxes"] = arrays["boxes"] * np.float32(factor)
    return changed


def draw_maps(chance: Chance, settings: PoseAugmentationSettings, side: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Choose a random affine map for each example, (n, 2, 3); also return whether the map mirrors, (n,).

    A map takes a point of the given image to its point in the new image. It mirrors, scales and rotates about the
    image's centre, then shifts.
    """
    flips = chance.between("pose flip", 0, 1) < (0.5 if settings.flip else 0)
    angles = np.radians(chance.between("pose rotation", -settings.rotation, settings.rotation))
    scales = np.exp(chance.between("pose scale", np.log(settings.smallest), np.log(settings.largest)))
    shifts = np.stack([chance.between(f"pose shift {axis}", -settings.shift, settings.shift) for axis in "xy"], axis=-1)
    return affine_maps(flips, angles, scales, shifts * side, side), flips


def affine_maps(flips: npt.NDArray[np.bool_], angles: Floats, scales: Floats, shifts: Floats, side: int) -> Floats:
    """Compute affine maps about an image's centre, (n, 2, 3).

    Flips exchange left and right. Angles are in radians, clockwise for the viewer. Shifts, (n, 2), are in pixels, right
    and down.
    """
    cosines, sines = np.cos(angles) * scales, np.sin(angles) * scales
    mirror = np.where(flips, -1.0, 1.0)
    linear = np.stack([np.stack([cosines * mirror, -sines], -1), np.stack([sines * mirror, cosines], -1)], -2)
    centre = (side - 1) / 2
    offset = centre + shifts - linear.sum(axis=-1) * centre
    return np.concatenate([linear, offset[..., None]], axis=-1)


def moved_images(images: Pixels, maps: Floats, fill: npt.ArrayLike, colours: Floats | None = None) -> Pixels:
    """Move and recolour images, uint8 (n, side, side, 3), by bilinear resampling.

    Args:
        images: uint8 (n, side, side, 3), RGB.
        maps: affine maps, (n, 2, 3).
        fill: the colour of pixels from outside an image.
        colours: affine maps of the RGB values, (n, 3, 4); None to keep the colours.
    """
    moved = np.empty_like(images)
    border = [*(float(value) for value in np.broadcast_to(fill, 3)), 0.0]
    size = images.shape[2], images.shape[1]
    # With a fourth channel OpenCV moves an image in half the time. All steps run image by image, while the image is in
    # the processor's cache.
    given, turned = (np.empty((*images.shape[1:3], 4), np.uint8) for _ in range(2))
    narrow = np.empty(images.shape[1:], np.uint8)
    for number, (image, affine, target) in enumerate(zip(images, maps, moved, strict=True)):
        cv2.cvtColor(image, cv2.COLOR_RGB2RGBA, dst=given)
        cv2.warpAffine(given, affine, size, dst=turned, flags=cv2.INTER_LINEAR, borderValue=border)
        cv2.cvtColor(turned, cv2.COLOR_RGBA2RGB, dst=target if colours is None else narrow)
        if colours is not None:
            cv2.transform(narrow, colours[number], dst=target)
    return moved


def moved_joints(
    keypoints: npt.NDArray[np.float32], maps: Floats, flips: npt.NDArray[np.bool_], side: int, skeleton: Skeleton
) -> npt.NDArray[np.float32]:
    """Move joints (n, people, joints, 3) by affine maps (n, 2, 3); in mirrored images, swap left and right joints.

    Joints that leave the image become unlabelled, with zeros.
    """
    swapped = np.where(flips[:, None, None, None], keypoints[:, :, skeleton.mirror], keypoints)
    places = _mapped(swapped[..., :2], maps)
    # A pixel extends half a pixel around its centre.
    inside = ((places >= -0.5) & (places < side - 0.5)).all(axis=-1) & (swapped[..., 2] > 0)
    moved = np.concatenate([places, swapped[..., 2:]], axis=-1) * inside[..., None]
    return moved.astype(np.float32)


def moved_boxes(boxes: npt.NDArray[np.float32], maps: Floats, side: int) -> npt.NDArray[np.float32]:
    """Move boxes (n, people, 4) by affine maps (n, 2, 3); return the upright boxes around them, cut at the border.

    A box is left, top, width, height. Empty boxes (entries without a person) and boxes outside the image become zeros.
    In coordinates of boxes, unlike those of joints, an integer is the border between two pixels.
    """
    corners = boxes[..., None, :2] + boxes[..., None, 2:] * _CORNERS - 0.5  # (n, people, 4 corners, 2)
    cut = np.clip(_mapped(corners, maps) + 0.5, 0, side)
    low, high = cut.min(axis=-2), cut.max(axis=-2)
    left_over = ((high > low) & (boxes[..., 2:] > 0)).all(axis=-1)
    return (np.concatenate([low, high - low], axis=-1) * left_over[..., None]).astype(np.float32)


def moved_masks(masks: Pixels, maps: Floats, side: int) -> Pixels:
    """Move masks (n, m, m), whose cells each cover a square of pixels, by affine maps; fill with 0 from outside."""
    cell = side / masks.shape[1]
    centre = (cell - 1) / 2  # of the first square, in pixels
    in_cells = maps.copy()
    in_cells[..., 2] = (maps[..., 2] + maps[..., :2].sum(axis=-1) * centre - centre) / cell
    moved = np.empty_like(masks)
    for mask, affine, target in zip(masks, in_cells, moved, strict=True):
        cv2.warpAffine(mask, affine, mask.shape[::-1], dst=target, flags=cv2.INTER_LINEAR)
    return moved


def _mapped(places: npt.NDArray[np.floating], maps: Floats) -> Floats:
    """Apply affine maps (n, 2, 3) to points (n, …, 2), in float64; exact for mirrored multiples of 1/64."""
    between = (1,) * (places.ndim - 2)
    linear, offset = maps[..., :2], maps[..., 2].reshape(-1, *between, 2)
    x, y = places[..., :1].astype(np.float64), places[..., 1:].astype(np.float64)
    return x * linear[..., 0].reshape(-1, *between, 2) + y * linear[..., 1].reshape(-1, *between, 2) + offset


def require_fit(recipe: Recipe, manifest: Manifest) -> None:
    """Check that the input has the images' size, and that the skeleton knows mirrored joints if ``flip`` is true.

    Raises:
        SettingsError: the recipe does not fit the data set.
    """
    poses = PoseSettings.of(recipe)
    if poses.augmentation.flip and manifest.skeleton.mirrored is None:
        raise SettingsError(
            "task.augmentation.flip=true needs to know left and right joints, but the joint names of "
            f"{manifest.dataset}/{manifest.fingerprint} do not tell them: train with `--set "
            'task.augmentation.flip=false`, or convert with `--set \'conversion.mirrored=[["A","B"]]\'` '
            "([] if a mirror image swaps no joints)"
        )
    size, stride = poses.augmentation.image_size, poses.targets.stride
    if size % stride:
        raise SettingsError(
            f"task.augmentation.image_size={size} must be a multiple of task.targets.stride={stride}; change either"
        )
    side, found = poses.side, manifest.image_shape[0]
    if found != side:
        raise SettingsError(
            f"task.side={side} vs images of {found} pixels in {manifest.dataset}/{manifest.fingerprint}: convert the "
            f"data with `--side {side}`, or train with `--set task.side={found}`"
        )
