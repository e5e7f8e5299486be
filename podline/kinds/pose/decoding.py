"""Decodes heatmaps and part affinity fields into people; heatmaps alone are decoded into one person per image.

Cao et al.: "Realtime Multi-Person 2D Pose Estimation using Part Affinity Fields", CVPR 2017: peaks are joints, the
field along the line between two peaks shows whether a limb connects them, and the strongest limbs are used first. In
this module the limbs of all types are sorted together, so a strong limb precedes weak limbs of other types. Groups of
joints are merged until no limb is left.

Peaks are refined to fractions of a cell by the logarithms of heatmaps, after Zhang et al.: "Distribution-Aware
Coordinate Representation for Human Pose Estimation", CVPR 2020, separately along each axis.
"""

# pyright: standard
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.base.arrays import Array
from podline.data.letterbox import from_cells
from podline.documents.skeleton import Skeleton
from podline.kinds.pose.settings import DecodingSettings

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

_NO_LIMB = -1
# Lower bound of heatmaps before the logarithm, since a network's outputs may be negative.
_LOWEST = 1e-4


class DecodedPeople(NamedTuple):
    """The people of an image, best score first.

    Attributes:
        poses: float32 (people, joints, 3): x and y in pixels of the network's input, and the height of the joint's
            peak, 0…1; missing joints are zeros.
        scores: float32 (people,): the sum of the peaks' heights divided by the number of joints, 0…1.
    """

    poses: Floats
    scores: Floats


class Peaks(NamedTuple):
    """Peaks in the heatmaps of a batch, ordered by image, joint and descending height.

    Attributes:
        images: (k,), index of the image in the batch.
        joints: (k,), index of the joint.
        places: float64 (k, 2), x and y in cells; an integer is the centre of a cell.
        heights: float32 (k,), 0…1.
    """

    images: Ints
    joints: Ints
    places: npt.NDArray[np.float64]
    heights: Floats

    def part(self, part: slice) -> Peaks:
        """Return the peaks at some indices."""
        return Peaks(self.images[part], self.joints[part], self.places[part], self.heights[part])


class Links(NamedTuple):
    """Candidate limbs of an image: indices of both end peaks, (k,) each, and the mean field along the limb, (k,)."""

    starts: Ints
    ends: Ints
    strengths: Floats


def decode_people(
    heatmaps: Floats, pafs: Floats, stride: int, settings: DecodingSettings, skeleton: Skeleton
) -> list[DecodedPeople]:
    """Return the people in each image of a batch.

    Args:
        heatmaps: (n, height, width, joints), in the form of :func:`podline.kinds.pose.targets.pose_targets`.
        pafs: (n, height, width, 2 × limbs), in the same form; with 0 channels, each image is decoded into one person.
        stride: pixels of the network's input per cell.
        settings: thresholds.
        skeleton: the joints and limbs.
    """
    if not pafs.shape[-1]:
        return _the_only_people(heatmaps, stride)
    peaks = find_peaks(heatmaps, settings)
    borders = np.searchsorted(peaks.images, np.arange(len(heatmaps) + 1))
    return [
        _people_of_image(peaks.part(slice(first, end)), paf, stride, settings, skeleton)
        for first, end, paf in zip(borders[:-1], borders[1:], pafs, strict=True)
    ]


def _the_only_people(heatmaps: Floats, stride: int) -> list[DecodedPeople]:
    """Return one person per image: each joint is at the maximum of its heatmap, even if the maximum is low."""
    count, height, width, joints = heatmaps.shape
    cells = heatmaps.reshape(count, height * width, joints).argmax(axis=1).ravel()
    images, kinds = np.indices((count, joints)).reshape(2, -1)
    places, heights = _refined(heatmaps, images, cells // width, cells % width, kinds)
    poses = np.concatenate([from_cells(places, stride), heights[:, None]], axis=-1, dtype=np.float32)
    return [DecodedPeople(pose[None], pose[None, :, 2].mean(axis=-1)) for pose in poses.reshape(count, joints, 3)]


def find_peaks(heatmaps: Floats, settings: DecodingSettings) -> Peaks:
    """Return the local maxima of heatmaps, refined to fractions of a cell.

    Among equal neighbours the first, row by row, is the peak, so a pair or a rectangle of equal cells has one peak.

    Args:
        heatmaps: (n, height, width, joints), with a height and width of at least 3.
        settings: ``peak_threshold`` and ``peaks_per_joint``.
    """
    joints = heatmaps.shape[-1]
    around = np.pad(heatmaps, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    images, rows, columns, kinds = np.nonzero(heatmaps > settings.peak_threshold)
    values = heatmaps[images, rows, columns, kinds]
    highest = np.ones(len(values), bool)
    for step in range(9):
        neighbours = around[images, rows + step // 3, columns + step % 3, kinds]
        highest &= values > neighbours if step < 4 else values >= neighbours
    images, rows, columns, kinds, values = (array[highest] for array in (images, rows, columns, kinds, values))
    order = np.lexsort((-values, kinds, images))
    maps = (images * joints + kinds)[order]
    rank = np.arange(len(maps)) - np.searchsorted(maps, maps)
    order = order[rank < settings.peaks_per_joint]
    images, rows, columns, kinds = (array[order] for array in (images, rows, columns, kinds))
    return Peaks(images, kinds, *_refined(heatmaps, images, rows, columns, kinds))


def _refined(
    heatmaps: Floats, images: Ints, rows: Ints, columns: Ints, kinds: Ints
) -> tuple[npt.NDArray[np.float64], Floats]:
    """Refine peaks: return their x and y, (k, 2), and heights, (k,), from parabolas through three log values per axis.

    The logarithm of a Gaussian is a parabola, so the maximum of a Gaussian of any width is exact. At the image's border
    the three cells are the border cell and the next two inside.
    """

    def logs(at_rows: Ints, at_columns: Ints) -> Floats:
        return np.log(np.maximum(heatmaps[images, at_rows, at_columns, kinds], _LOWEST))

    height, width = heatmaps.shape[1:3]
    middles = np.clip(columns, 1, width - 2), np.clip(rows, 1, height - 2)
    x, rise_x = _top(columns, middles[0], [logs(rows, middles[0] + step) for step in (-1, 0, 1)])
    y, rise_y = _top(rows, middles[1], [logs(middles[1] + step, columns) for step in (-1, 0, 1)])
    heights = np.exp(np.minimum(logs(rows, columns) + rise_x + rise_y, 0))
    return np.stack([x, y], axis=-1), heights.astype(np.float32)


def _top(cells: Ints, middles: Ints, logs: list[Floats]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return where each parabola is highest within half a cell of the peak's cell, and how far it rises above the cell.

    Args:
        cells: the peaks' cells along one axis.
        middles: the middle of the three cells that define each parabola.
        logs: log values before, at and after the middle cell.
    """
    before, at, after = (values.astype(np.float64) for values in logs)
    slope, curvature = (after - before) / 2, 2 * at - before - after
    top = middles + np.divide(slope, curvature, out=np.zeros_like(slope), where=curvature > 0)
    top = np.where(curvature > 0, np.clip(top, cells - 0.5, cells + 0.5), cells)

    def parabola(places: Array) -> npt.NDArray[np.float64]:
        return at + slope * (places - middles) - curvature / 2 * (places - middles) ** 2

    return top, np.maximum(parabola(top) - parabola(cells), 0)


def _people_of_image(
    peaks: Peaks, paf: Floats, stride: int, settings: DecodingSettings, skeleton: Skeleton
) -> DecodedPeople:
    groups = assemble(peaks, find_links(peaks, paf, settings, skeleton))
    enough = min(settings.min_joints, len(skeleton.joints))
    people = [group for group in groups if len(group) >= enough]
    fragments = [group for group in groups if len(group) < enough]
    poses = np.zeros((len(people), len(skeleton.joints), 3), np.float32)
    for pose, members in zip(poses, with_fragments(peaks, people, fragments, settings.reach), strict=True):
        pose[peaks.joints[members], :2] = from_cells(peaks.places[members], stride)
        pose[peaks.joints[members], 2] = peaks.heights[members]
    scores = poses[..., 2].mean(axis=-1)
    order = np.argsort(-scores, kind="stable")
    return DecodedPeople(poses[order], scores[order])


def find_links(peaks: Peaks, paf: Floats, settings: DecodingSettings, skeleton: Skeleton) -> Links:
    """Return the pairs of peaks between which the field of their limb is strong enough.

    Args:
        peaks: the peaks of one image.
        paf: the fields of the image, (height, width, 2 × limbs).
        settings: ``samples`` and the thresholds of limbs.
        skeleton: the limbs.
    """
    limb_of = np.full((len(skeleton.joints), len(skeleton.joints)), _NO_LIMB)
    limb_of[skeleton.starts, skeleton.ends] = np.arange(len(skeleton.limbs))
    limbs = limb_of[peaks.joints[:, None], peaks.joints]
    starts, ends = np.nonzero(limbs != _NO_LIMB)
    limbs = limbs[starts, ends]
    vectors = (peaks.places[ends] - peaks.places[starts]) @ (1, 1j)
    lengths = np.abs(vectors)
    directions = vectors / np.where(lengths, lengths, 1)
    shares = np.linspace(0, 1, settings.samples)[:, None]
    points = peaks.places[starts] + shares[..., None] * (peaks.places[ends] - peaks.places[starts])
    # points: (samples, pairs, 2)
    fields = _sampled(paf, points, limbs)
    along = (fields * directions.conj()).real
    strengths = along.mean(axis=0).astype(np.float32)
    enough = (along > settings.sample_threshold).mean(axis=0) >= settings.sample_share
    kept = enough & (strengths > settings.limb_threshold)
    return Links(starts[kept], ends[kept], strengths[kept])


def _sampled(paf: Floats, points: npt.NDArray[np.float64], limbs: Ints) -> npt.NDArray[np.complexfloating]:
    """Return a limb's field at points (…, 2) as x + iy, by bilinear interpolation; outside, use the border cells."""
    height, width = paf.shape[:2]
    vectors = np.ascontiguousarray(paf).view(np.complex64).reshape(height * width, -1)
    x, y = np.clip(points[..., 0], 0, width - 1), np.clip(points[..., 1], 0, height - 1)
    left, top = np.minimum(x.astype(np.int64), width - 2), np.minimum(y.astype(np.int64), height - 2)
    right_share, lower_share = (x - left).astype(np.float32), (y - top).astype(np.float32)
    cells = top * width + left
    upper = vectors[cells, limbs] * (1 - right_share) + vectors[cells + 1, limbs] * right_share
    cells += width
    lower = vectors[cells, limbs] * (1 - right_share) + vectors[cells + 1, limbs] * right_share
    return upper * (1 - lower_share) + lower * lower_share


def assemble(peaks: Peaks, links: Links) -> list[list[int]]:
    """Group peaks into people with at most one peak per joint.

    Links are applied strongest first. A link merges the groups of its two peaks, unless a joint is in both groups.
    Links of equal strength keep their order.
    """
    groups = [[peak] for peak in range(len(peaks.joints))]
    joints = [1 << joint for joint in peaks.joints.tolist()]
    group_of = list(range(len(groups)))
    order = np.argsort(-links.strengths, kind="stable")
    for start, end in zip(links.starts[order].tolist(), links.ends[order].tolist(), strict=True):
        first, second = group_of[start], group_of[end]
        if first == second or joints[first] & joints[second]:
            continue
        joints[first] |= joints[second]
        groups[first] += groups[second]
        for peak in groups[second]:
            group_of[peak] = first
        groups[second] = []
    return [group for group in groups if group]


def with_fragments(peaks: Peaks, people: list[list[int]], fragments: list[list[int]], reach: float) -> list[list[int]]:
    """Merge each fragment into the nearest person within reach that lacks all joints of the fragment.

    A wrist without a visible elbow has no limb, but belongs to a person. Fragments with more joints are merged first,
    then those with higher peaks.

    Args:
        peaks: the peaks of one image.
        people: groups of peaks.
        fragments: groups that are too small for a person.
        reach: largest distance between a fragment and the nearest joint of a person, as a share of the diagonal of the
            box around the person's joints.
    """
    if not (people and fragments):
        return people
    shares = _distances(peaks, fragments, people) / _diagonals(peaks, people)
    grown = [list(members) for members in people]
    joints = [_joint_set(peaks, members) for members in people]
    by_choice = sorted(range(len(fragments)), key=lambda i: (-len(fragments[i]), -peaks.heights[fragments[i]].max()))
    for index in by_choice:
        own = _joint_set(peaks, fragments[index])
        for person in np.argsort(shares[index], kind="stable").tolist():
            if shares[index, person] > reach:
                break
            if not joints[person] & own:
                joints[person] |= own
                grown[person] += fragments[index]
                break
    return grown


def _joint_set(peaks: Peaks, members: list[int]) -> int:
    """Return the joints of a group of peaks as a bit mask."""
    return sum(1 << joint for joint in peaks.joints[members].tolist())


def _distances(peaks: Peaks, fragments: list[list[int]], people: list[list[int]]) -> npt.NDArray[np.float64]:
    """Return the shortest distance between joints of each fragment and each person, in cells, (fragments, people)."""
    rows, columns = ([peak for group in groups for peak in group] for groups in (fragments, people))
    between = np.linalg.norm(peaks.places[rows][:, None] - peaks.places[columns], axis=-1)
    by_fragment = np.minimum.reduceat(between, _firsts(fragments), axis=0)
    return np.minimum.reduceat(by_fragment, _firsts(people), axis=1)


def _firsts(groups: list[list[int]]) -> Ints:
    """Return the offset of each group in the concatenation of all groups."""
    return np.cumsum([0, *(len(group) for group in groups[:-1])])


def _diagonals(peaks: Peaks, people: list[list[int]]) -> npt.NDArray[np.float64]:
    """Return the diagonal of the box around each person's joints, in cells, at least 1, (people,)."""
    return np.array([max(1.0, np.linalg.norm(np.ptp(peaks.places[members], axis=0))) for members in people])
