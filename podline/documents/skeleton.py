"""A skeleton: the joints of a pose and the limbs that connect them, such as those of COCO's people.

Poses are arrays (…, joints, 3) of x, y and a third number. In annotations, the third number is COCO's visibility (0 not
labelled, 1 labelled but hidden, 2 visible). In predictions it is a score, 0 for a missing joint.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from pydantic import Field, model_validator

from podline.base.frozen import Frozen, omitted

SUBJECTS, ONE, SEVERAL = "subjects", "one", "several"
"""The key among a data set's facts for the number of annotated instances per image, and the two values there."""
SKELETON = "skeleton"  # the key among the facts of a data set
Pair = tuple[str, str]
_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")  # https://www.unicode.org/reports/tr44/#General_Category_Values
OTHER_SIGMA = 0.05
"""The default OKS constant of a joint that COCO lacks; COCO's constants are between 0.025 and 0.107."""

_SIDE = re.compile(r"(?i:left|right)|(?<![A-Za-z])[LlRr](?![A-Za-z])|(?<=[a-z])[LR](?![a-z])|^[lr](?=[A-Z])")


class Skeleton(Frozen):
    """Joints, limbs, and their properties for drawing, detecting and evaluating poses.

    Attributes:
        joints: names of the joints, in the order in which every array of poses has them.
        limbs: pairs of joints; a part affinity field points from the first joint to the second.
        annotated: names of the joints in annotation and result files, in the order of the files.
        sigmas: the OKS constant of each annotated joint.
        midpoints: each joint without annotation → the two annotated joints whose midpoint it is.
        mirrored: pairs (right, left) of joints that a mirror image exchanges; empty if there are none; None if unknown.
        category: COCO category; empty for several categories.
    """

    joints: tuple[str, ...] = Field(min_length=2)
    limbs: tuple[Pair, ...] = Field(min_length=1)
    annotated: tuple[str, ...]
    sigmas: tuple[float, ...]
    midpoints: dict[str, Pair] = omitted({})
    mirrored: tuple[Pair, ...] | None = None
    category: str = omitted("")

    @model_validator(mode="after")
    def _fits_together(self) -> Skeleton:
        _require_once("joints", self.joints)
        _require_once("annotated and midpoints", (*self.annotated, *self.midpoints))
        _require_once("limbs", (" – ".join(sorted(limb)) for limb in self.limbs))
        _require_once("mirrored", (joint for pair in self.mirrored or () for joint in pair))
        _require_known("joints", self.joints, {*self.annotated, *self.midpoints})
        _require_known("annotated and midpoints", (*self.annotated, *self.midpoints), set(self.joints))
        for pairs in (self.limbs, self.mirrored or (), self.midpoints.values()):
            for first, second in pairs:
                _require_known("a pair of joints", (first, second), set(self.joints))
                if first == second:
                    raise ValueError(f"got a pair of {first} and {first}, expected two different joints")
        for name in (*self.joints, self.category):
            if control := control_character(name):
                raise ValueError(f"{name!r} contains the control character {control}, expected a name without one")
        if len(self.sigmas) != len(self.annotated) or not all(0 < sigma < math.inf for sigma in self.sigmas):
            raise ValueError(
                f"got sigmas={list(self.sigmas)}, expected a finite value above 0 for each of the "
                f"{len(self.annotated)} annotated joints"
            )
        return self

    @property
    def index(self) -> dict[str, int]:
        """Joint name → the joint's index in an array of poses."""
        return {name: index for index, name in enumerate(self.joints)}

    @property
    def places(self) -> tuple[int, ...]:
        """The index of each annotated joint in an array of poses."""
        return tuple(self.index[name] for name in self.annotated)

    @property
    def starts(self) -> tuple[int, ...]:
        """The index of each limb's first joint."""
        return tuple(self.index[first] for first, _ in self.limbs)

    @property
    def ends(self) -> tuple[int, ...]:
        """The index of each limb's second joint."""
        return tuple(self.index[second] for _, second in self.limbs)

    @property
    def mirror(self) -> tuple[int, ...]:
        """The permutation that mirrors a pose: joint ``i`` of the mirrored pose is joint ``mirror[i]`` of the pose."""
        swapped = {name: other for pair in self.mirrored or () for name, other in (pair, pair[::-1])}
        return tuple(self.index[swapped.get(name, name)] for name in self.joints)


def control_character(name: str) -> str:
    """Return the first line break, bidirectional control or invisible character as ``U+XXXX``; empty without one."""
    return next((f"U+{ord(each):04X}" for each in name if unicodedata.category(each) in _CONTROLS), "")


def side_of(joint: str) -> Pair:
    """Split a joint's name into ``left``, ``right`` or an empty text, and the rest: ``eyeL`` → ("left", "eye*")."""
    found = _SIDE.search(joint)
    if found is None:
        return "", joint
    return "left" if found[0][0] in "lL" else "right", f"{joint[: found.start()]}*{joint[found.end() :]}"


def mirrored_by_name(joints: Iterable[str]) -> tuple[Pair, ...] | None:
    """Return the pairs (right, left) of joints by their names; None if no name has a side, or a pair is incomplete."""
    sides: dict[str, dict[str, str]] = {}
    for joint in joints:
        side, rest = side_of(joint)
        if side:
            sides.setdefault(rest, {})[side] = joint
    if not sides or any(len(pair) < 2 for pair in sides.values()):
        return None
    return tuple((pair["right"], pair["left"]) for pair in sides.values())


def sigmas_by_name(joints: Iterable[str]) -> tuple[float, ...]:
    """Return each joint's OKS constant: COCO's for joints with COCO's names, :data:`OTHER_SIGMA` for the others."""
    known = dict(zip(COCO.annotated, COCO.sigmas, strict=True))
    return tuple(known.get(joint, OTHER_SIGMA) for joint in joints)


def _require_once(what: str, names: Iterable[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise ValueError(f"{what}: {name!r} occurs {times} times, expected once")


def _require_known(what: str, names: Iterable[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{what}: there is no joint {name!r}; the joints are {', '.join(sorted(known))}")


_CENTER = ("nose", "neck")
_SIDED = ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
_SIDED_LIMBS = (
    ("neck", "shoulder"),
    ("shoulder", "elbow"),
    ("elbow", "wrist"),
    ("shoulder", "hip"),
    ("hip", "knee"),
    ("knee", "ankle"),
    ("nose", "eye"),
    ("eye", "ear"),
    # These limbs are a second path from the face to the body, for a person whose nose or shoulder is hidden.
    ("ear", "shoulder"),
)
# In the order of COCO's joints, computed like pycocotools, to the last bit.
_SIGMAS_BY_TEN = (0.26, 0.25, 0.25, 0.35, 0.35, *(s for s in (0.79, 0.72, 0.62, 1.07, 0.87, 0.89) for _ in range(2)))


def _on_side(limb: Pair, side: str) -> Pair:
    start, end = (name if name in _CENTER else f"{side}_{name}" for name in limb)
    return start, end


COCO = Skeleton(
    # First the joints on the body's axis, then the person's right, then the person's left, as opposed to the viewer's.
    joints=(*_CENTER, *(f"{side}_{name}" for side in ("right", "left") for name in _SIDED)),
    limbs=(
        ("neck", "nose"),
        # Connects the two halves of a body whose neck is unknown because only one shoulder is visible.
        ("right_hip", "left_hip"),
        *(_on_side(limb, side) for side in ("right", "left") for limb in _SIDED_LIMBS),
    ),
    annotated=("nose", *(f"{side}_{name}" for name in _SIDED for side in ("left", "right"))),
    sigmas=tuple(sigma / 10 for sigma in _SIGMAS_BY_TEN),
    # COCO's people have no neck (https://cocodataset.org/#format-data); a neck connects face and body.
    midpoints={"neck": ("right_shoulder", "left_shoulder")},
    mirrored=tuple((f"right_{name}", f"left_{name}") for name in _SIDED),
    category="person",
)
"""COCO's people: 17 joints and the neck, 20 limbs."""
