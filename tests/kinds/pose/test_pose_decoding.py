"""People are decoded from maps to a twentieth of a pixel, each joint once, in bounded work."""

from __future__ import annotations

import numpy as np
import pytest

from podline.documents.skeleton import COCO
from podline.kinds.pose.decoding import Links, Peaks, assemble, decode_people, find_peaks, with_fragments
from podline.kinds.pose.settings import DecodingSettings, PoseTargetSettings
from podline.kinds.pose.targets import pose_targets

SIDE, STRIDE = 184, 8
CELLS = SIDE // STRIDE
SETTINGS = DecodingSettings()

# A person who faces us, about 130 pixels high: the person's right is on our left.
STANDING = {
    "nose": (92, 30), "neck": (92, 52), "right_eye": (84, 24), "left_eye": (100, 24), "right_ear": (76, 28),
    "left_ear": (108, 28), "right_shoulder": (70, 52), "left_shoulder": (114, 52), "right_elbow": (60, 74),
    "left_elbow": (124, 74), "right_wrist": (54, 96), "left_wrist": (130, 96), "right_hip": (78, 98),
    "left_hip": (106, 98), "right_knee": (76, 128), "left_knee": (108, 128), "right_ankle": (74, 156),
    "left_ankle": (110, 156),
}  # fmt: skip


def person(*, without=(), shift=(0.0, 0.0), scale=1.0, **moved):
    pose = np.zeros((18, 3), np.float32)
    for name, place in (STANDING | moved).items():
        if name not in without:
            x, y = (np.array(place) - 92) * scale + 92 + shift
            pose[COCO.index[name]] = x, y, 2
    return pose


def maps(*people):
    poses = np.array(people, np.float32)[None]
    drawn = pose_targets(poses, np.zeros((1, CELLS, CELLS), np.uint8), SIDE, PoseTargetSettings(), COCO)
    return np.asarray(drawn.heatmaps), np.asarray(drawn.pafs)


def decoded(*people, settings=SETTINGS):
    return decode_people(*maps(*people), STRIDE, settings, COCO)[0]


def agree(found, *people, within=0.05):
    """Whether exactly these people were found, each joint within some pixels, in any order."""
    left = list(people)
    for pose in found.poses:
        matching = [wanted for wanted in left if ((pose[:, 2] > 0) == (wanted[:, 2] > 0)).all()]
        nearest = min(matching, key=lambda wanted: np.abs(pose[:, :2] - wanted[:, :2]).max())
        np.testing.assert_allclose(pose[:, :2], nearest[:, :2], rtol=0, atol=within)
        left = [wanted for wanted in left if wanted is not nearest]
    assert not left


def test_without_fields_each_joint_is_at_the_maximum_of_its_heatmap_however_low():
    """Computed one by one: a parabola through three logarithms on each axis, its middle moved off the border."""
    random = np.random.default_rng(3)
    noisy = maps(person(), person(shift=(30, 9), scale=0.6))[0] + random.uniform(0, 0.05, (1, CELLS, CELLS, 18))
    heatmaps = np.concatenate([noisy, random.uniform(0.001, 0.09, noisy.shape)]).astype(np.float32)
    heatmaps[1, 0, 5, 2] = heatmaps[1, CELLS - 1, CELLS - 1, 3] = 0.5  # at a border, and in a corner
    found = decode_people(heatmaps, heatmaps[..., :0], STRIDE, SETTINGS, COCO)
    assert [len(people.poses) for people in found] == [1, 1]
    for image, people in zip(heatmaps.astype(np.float64), found, strict=True):
        for joint, (x, y, height) in enumerate(people.poses[0]):
            logs = np.log(image[..., joint])
            row, column = (int(place) for place in np.unravel_index(logs.argmax(), logs.shape))
            top, wanted = logs[row, column], []
            for at, line in ((column, logs[row]), (row, logs[:, column])):
                middle = min(max(at, 1), CELLS - 2)
                parabola = np.polynomial.Polynomial.fit([-1, 0, 1], line[middle - 1 : middle + 2], 2).convert()
                place = at
                if parabola.coef[2] < 0:
                    place = min(max(parabola.deriv().roots()[0] + middle, at - 0.5), at + 0.5)
                top += max(0.0, parabola(place - middle) - parabola(at - middle))
                wanted.append((place + 0.5) * STRIDE - 0.5)
            np.testing.assert_allclose((x, y), wanted, rtol=0, atol=1e-3)
            assert height == pytest.approx(min(1.0, np.exp(top)), rel=1e-5)
        assert people.scores[0] == pytest.approx(people.poses[0, :, 2].mean())


CROSSED = {"right_wrist": (120, 90), "left_wrist": (64, 90)}
BORDER = {"right_wrist": (0, 96), "left_ankle": (110, 183), "left_wrist": (183, 96), "nose": (92, 0.25)}


@pytest.mark.parametrize(
    "people",
    [
        *([person(shift=shift)] for shift in ((3.3, -7.7), (-51.9, 26.4), (52.8, -22))),
        [person(**BORDER)],
        [person(**CROSSED)],
        [person(scale=0.5, shift=(shift, shift / 4)) for shift in (-50, 0, 50)],
        [
            person(scale=0.8, shift=(-40, 0), left_elbow=(150, 64), left_wrist=(190, 96)),
            person(scale=0.8, shift=(40, 0), right_elbow=(34, 94), right_wrist=(-6, 64)),
        ],
        [person(without=("nose",))],
        [person(without=("neck", "nose", "right_eye", "left_eye", "right_ear", "left_ear"))],
        [person(without=("left_hip", "right_hip"))],
        [person()[np.array(COCO.mirror)]],
    ],
    ids=["shifted", "left", "right", "border", "crossed", "three", "arms across", *["without joints"] * 3, "behind"],
)
def test_people_are_found_to_a_twentieth_of_a_pixel_and_score_the_share_of_their_joints(people):
    agree(found := decoded(*people), *people)
    shares = sorted(((pose[:, 2] > 0).mean() for pose in people), reverse=True)
    assert found.scores.tolist() == pytest.approx(shares, abs=0.06)  # a joint near the border lies between cells


def test_a_network_that_answers_nonsense_is_decoded_in_bounded_work():
    rng = np.random.default_rng(0)
    heatmaps = rng.normal(0.2, 0.3, (1, CELLS, CELLS, 18)).astype(np.float32)
    pafs = rng.normal(0, 0.5, (1, CELLS, CELLS, 40)).astype(np.float32)
    settings = DecodingSettings(peaks_per_joint=4)
    peaks = find_peaks(heatmaps, settings)
    assert np.bincount(peaks.joints, minlength=18).max() == 4
    joint = heatmaps[0, ..., 0]
    assert peaks.heights[0] >= min(joint.max(), 1)  # the highest are kept
    people = decode_people(heatmaps, pafs, STRIDE, settings, COCO)[0]
    assert len(people.poses) <= 18 * 4 // settings.min_joints
    assert np.isfinite(people.poses).all()
    assert (people.scores[:-1] >= people.scores[1:]).all()


def test_an_image_does_not_depend_on_its_batch():
    images = [maps(person(shift=(shift, 0)), person(scale=0.4, shift=(0, -shift))) for shift in (-30, 0, 30)]
    together = decode_people(*(np.concatenate(arrays) for arrays in zip(*images, strict=True)), STRIDE, SETTINGS, COCO)
    for batched, (heatmaps, pafs) in zip(together, images, strict=True):
        alone = decode_people(heatmaps, pafs, STRIDE, SETTINGS, COCO)[0]
        assert batched.poses.tobytes() == alone.poses.tobytes()


@pytest.mark.parametrize("plateau", [([2, 2], [2, 3]), ([2, 3], [2, 1]), ([2, 2, 3, 3], [2, 3, 2, 3])])
def test_equal_cells_are_one_peak(plateau):
    heatmaps = np.zeros((1, 7, 7, 18), np.float32)
    heatmaps[0, *plateau, 5] = 0.5
    peaks = find_peaks(heatmaps, SETTINGS)
    assert peaks.joints.tolist() == [5]
    for place, cells in zip(peaks.places[0], reversed(plateau), strict=True):
        assert min(cells) - 0.5 <= place <= max(cells) + 0.5


def peaks_of(*joints, places=None):
    count = len(joints)
    return Peaks(
        np.zeros(count, int),
        np.array([COCO.index[joint] for joint in joints]),
        np.array(places if places is not None else [(number, 0) for number in range(count)], float),
        np.linspace(1, 0.5, count).astype(np.float32),
    )


@pytest.mark.parametrize(
    ("joints", "links", "groups"),
    [
        (("neck", "nose", "nose"), [(0, 1, 0.5), (0, 2, 0.9)], [[0, 2], [1]]),
        # Of equal links the first wins.
        (("neck", "nose", "nose"), [(0, 2, 0.5), (0, 1, 0.5)], [[0, 2], [1]]),
        # Two groups that both have a nose cannot become one by a link between other joints.
        (("neck", "nose", "nose", "right_eye"), [(0, 1, 0.9), (2, 3, 0.8), (1, 3, 0.7)], [[0, 1], [2, 3]]),
        # A limb of which the network is sure overrules one of another kind.
        (("neck", "nose", "right_shoulder", "neck"), [(3, 2, 0.9), (0, 1, 0.8), (0, 2, 0.85)], [[0, 1], [3, 2]]),
    ],
)
def test_the_strongest_links_make_people_that_have_no_joint_twice(joints, links, groups):
    starts, ends, strengths = map(np.array, zip(*links, strict=True))
    assert sorted(assemble(peaks_of(*joints), Links(starts, ends, strengths.astype(np.float32)))) == sorted(groups)


def test_a_fragment_goes_to_the_nearest_person_that_lacks_it_and_is_in_reach():
    peaks = peaks_of(
        "neck", "nose", "right_shoulder", "neck", "nose", "right_wrist", "right_wrist",
        places=[(0, 10), (0, 0), (2, 10), (20, 10), (20, 0), (18, 11), (3, 12)],
    )  # fmt: skip
    people, fragments = [[0, 1, 2], [3, 4]], [[5], [6]]
    assert with_fragments(peaks, people, fragments, 0.5) == [[0, 1, 2, 6], [3, 4, 5]]
    # The second wrist is nearer to the first person than to the second, but one that has a wrist gets no other.
    assert with_fragments(peaks, [[0, 1, 2, 6], [3, 4]], [[5]], 5.0)[1] == [3, 4, 5]
    assert with_fragments(peaks, [[0, 1, 2, 6]], [[5]], 5.0) == [[0, 1, 2, 6]]
    peaks = peaks_of("neck", "nose", "right_wrist", places=[(0, 10), (0, 0), (5.1, 10)])
    assert with_fragments(peaks, [[0, 1]], [[2]], 0.5) == [[0, 1]]
    assert with_fragments(peaks, [[0, 1]], [[2]], 0.52) == [[0, 1, 2]]


def test_every_limb_alone_joins_its_joints():
    for start, end in COCO.limbs:
        pair = np.zeros((18, 3), np.float32)
        pair[[COCO.index[start], COCO.index[end]]] = [(60, 60, 2), (90, 100, 2)]
        agree(decoded(pair, settings=DecodingSettings(min_joints=2)), pair)
