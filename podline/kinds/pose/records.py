"""The targets of an image with people: joints, masks of ignored regions, and areas."""

from __future__ import annotations

import numpy as np

from podline.base.arrays import Arrays
from podline.documents.manifest import Manifest
from podline.recipes.targets import Targets

KEYPOINTS = "keypoints"


class PeopleTargets(Targets):
    """People in the form that :class:`podline.data.people.records.PeopleByPlace` writes."""

    def check(self, records: Arrays, manifest: Manifest) -> tuple[int, str] | None:
        """Return the first record with an invalid joint, and the problem; see :meth:`Targets.check`."""
        joints, side = records[KEYPOINTS], manifest.image_shape[0]
        inside = (joints[..., :2] >= -0.5) & (joints[..., :2] <= side - 0.5)  # False for NaN
        wrong = ~inside.all(axis=-1) | ~np.isin(joints[..., 2], (0, 1, 2))
        if not wrong.any():
            return None
        record, person, joint = (int(place) for place in np.argwhere(wrong)[0])
        x, y, visibility = joints[record, person, joint].tolist()
        return record, (
            f"has joint {joint} of person {person} at ({x:g}, {y:g}) with visibility {visibility:g}, expected "
            f"coordinates in an image of {side} pixels and a visibility of 0, 1 or 2"
        )
