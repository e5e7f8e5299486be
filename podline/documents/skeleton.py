"""A skeleton: the joints of a pose and the limbs that connect them; COCO's people are one example.

Poses are arrays (…, joints, 3) of x, y and a third number. In annotations it is COCO's visibility (0 not labelled, 1
labelled but hidden, 2 visible), in network results a score, 0 for a missing joint.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from pydantic import Field, model_validator

from podline.base.frozen import Frozen

SUBJECTS, ONE, SEVERAL = "subjects", "one", "several"
"""The fact whether an image of a data set has several annotated instances, and its values."""
SKELETON = "skeleton"  # the key among the facts of a data set
Pair = tuple[str, str]
_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")  # https://www.unicode.org/reports/tr44/#General_Category_Values
OTHER_SIGMA = 0.05
"""The default of OKS's constant for joints that COCO lacks; COCO's constants are between 0.025 and 0.107."""

_SIDE = re.compile(r"(?i:left|right)|(?<![A-Za-z])[LlRr](?![A-Za-z])|(?<=[a-z])[LR](?![a-z])|^[lr](?=[A-Z])")


class Skeleton(Frozen):
    """Joints, limbs, and their properties for drawing, finding and evaluating poses.

    Attributes:
        joints: names of the joints, in the order of every array of poses.
        limbs: pairs of a first and a second joint; part affinity fields point from the first to the second.
        annotated: names of the joints in annotations and results, in their order.
        sigmas: OKS's constant of each annotated joint.
        midpoints: the other joints: each is midway between two annotated joints.
        mirrored: pairs of joints that a mirror image exchanges, right ↔ left; empty if it exchanges none; None if
            unknown.
        category: name of the category; empty for several categories.
    """

    joints: tuple[str, ...] = Field(min_length=2)
    limbs: tuple[Pair, ...] = Field(min_length=1)
    annotated: tuple[str, ...]
    sigmas: tuple[float, ...]
    midpoints: dict[str, Pair] = Field(default_factory=dict, exclude_if=lambda made: not made)
    mirrored: tuple[Pair, ...] | None = None
    category: str = Field(default="", exclude_if=lambda category: not category)

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
                    raise ValueError(f"got a pair of {first} with itself, expected two joints")
        for name in (*self.joints, self.category):
            if control := control_character(name):
                raise ValueError(f"{name!r} has the control character {control} vs a name that can be shown")
        if len(self.sigmas) != len(self.annotated) or not all(0 < sigma < math.inf for sigma in self.sigmas):
            raise ValueError(
                f"sigmas {list(self.sigmas)} vs a finite one above 0 for each of {len(self.annotated)} joints"
            )
        return self

    @property
    def index(self) -> dict[str, int]:
        """Joint name → its place in an array of poses."""
        return {name: place for place, name in enumerate(self.joints)}

    @property
    def places(self) -> tuple[int, ...]:
        """The place of each annotated joint in an array of poses."""
        return tuple(self.index[name] for name in self.annotated)

    @property
    def starts(self) -> tuple[int, ...]:
        """The first joint of each limb."""
        return tuple(self.index[first] for first, _ in self.limbs)

    @property
    def ends(self) -> tuple[int, ...]:
        """The second joint of each limb."""
        return tuple(self.index[second] for _, second in self.limbs)

    @property
    def mirror(self) -> tuple[int, ...]:
        """The places that mirror a pose: joint ``i`` of a mirrored pose is joint ``mirror[i]`` of the pose."""
        swapped = {name: other for pair in self.mirrored or () for name, other in (pair, pair[::-1])}
        return tuple(self.index[swapped.get(name, name)] for name in self.joints)


def control_character(name: str) -> str:
    """Return the first character of a name that is a line break, changes the reading direction or is invisible."""
    return next((f"U+{ord(each):04X}" for each in name if unicodedata.category(each) in _CONTROLS), "")


def side_of(joint: str) -> Pair:
    """Split a name into its side, or an empty text, and the rest: ``left_ear``, ``eyeL``, ``R-hip``."""
    found = _SIDE.search(joint)
    if found is None:
        return "", joint
    return "left" if found[0][0] in "lL" else "right", f"{joint[: found.start()]}*{joint[found.end() :]}"


def mirrored_by_name(joints: Iterable[str]) -> tuple[Pair, ...] | None:
    """Return pairs of right and left joints by their names; None if no name has a side, or one has no partner."""
    sides: dict[str, dict[str, str]] = {}
    for joint in joints:
        side, rest = side_of(joint)
        if side:
            sides.setdefault(rest, {})[side] = joint
    if not sides or any(len(pair) < 2 for pair in sides.values()):
        return None
    return tuple((pair["right"], pair["left"]) for pair in sides.values())


def sigmas_by_name(joints: Iterable[str]) -> tuple[float, ...]:
    """Return COCO's constants for joints with COCO's names, and :data:`OTHER_SIGMA` for the others."""
    known = dict(zip(COCO.annotated, COCO.sigmas, strict=True))
    return tuple(known.get(joint, OTHER_SIGMA) for joint in joints)


def _require_once(what: str, names: Iterable[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise ValueError(f"{what}: {name!r} occurs {times} times vs once")


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
    # First the joints on the body's axis, then the person's own right, then the left; the viewer's sides are opposite.
    joints=(*_CENTER, *(f"{side}_{name}" for side in ("right", "left") for name in _SIDED)),
    limbs=(
        ("neck", "nose"),
        # Joins the two halves of a body that has no neck, because only one shoulder is visible.
        ("right_hip", "left_hip"),
        *(_on_side(limb, side) for side in ("right", "left") for limb in _SIDED_LIMBS),
    ),
    annotated=("nose", *(f"{side}_{name}" for name in _SIDED for side in ("left", "right"))),
    sigmas=tuple(sigma / 10 for sigma in _SIGMAS_BY_TEN),
    # COCO's people have no neck (https://cocodataset.org/#format-data); it joins the face to the body.
    midpoints={"neck": ("right_shoulder", "left_shoulder")},
    mirrored=tuple((f"right_{name}", f"left_{name}") for name in _SIDED),
    category="person",
)
"""COCO's people: 17 joints and the neck, 20 limbs."""
