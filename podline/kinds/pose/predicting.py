"""Detects people in pictures with a pose network, and draws their joints as skeletons."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tensorflow as tf

from podline.base.arrays import Array, Image
from podline.contract.picture_reader import PictureReader, Size
from podline.data.letterbox import LetterBox
from podline.documents.manifest import Fit
from podline.documents.skeleton import Skeleton
from podline.kinds.pose.coco_results import people_to_results
from podline.kinds.pose.decoding import decode_people
from podline.kinds.pose.judging import last_stages
from podline.kinds.pose.settings import PoseSettings
from podline.kinds.pose.skeletons import poses_of, with_skeletons
from podline.stages.tools import PicturePrediction

# A smaller picture is enlarged before skeletons are drawn on it, so that they are visible.
_LEAST_SIDE = 640


@dataclass(frozen=True)
class PeopleReader(PictureReader):
    """A reader for pose networks; see :class:`podline.contract.picture_reader.PictureReader`."""

    poses: PoseSettings
    threshold: float | None
    skeleton: Skeleton

    @property
    def tells(self) -> Literal["people"]:
        """The form of the answers: people."""
        return "people"

    @property
    def fit(self) -> Fit:
        """How pictures are fitted: the whole picture, with black borders, in a square."""
        return "letterbox"

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the network's input."""
        return self.poses.side, self.poses.side, 3

    def answers(self, outputs: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the last stages' heatmaps and fields."""
        return last_stages(outputs)

    def said(
        self, name: str, place: int, size: Size, answer: tuple[Array, Array], _most: int | None = None
    ) -> PicturePrediction:
        """Return the detected people with at least the threshold's score."""
        heatmaps, pafs = answer
        # COCO's image id if the file is named like COCO's files.
        numbered = re.fullmatch(r"(?:COCO_\w+_)?(\d{12})", Path(name).stem)
        image_id = int(numbered[1]) if numbered else place
        stride, decoding = self.poses.targets.stride, self.poses.decoding
        [people] = decode_people(heatmaps[None], pafs[None], stride, decoding, self.skeleton)
        results = people_to_results(people, image_id, LetterBox(*size, self.poses.side), self.skeleton)
        kept = [{**person, "file_name": Path(name).name} for person in results if person["score"] >= self.threshold]
        return PicturePrediction(file=name, width=size[0], height=size[1], people=tuple(kept))

    def drawn(self, said: PicturePrediction, pixels: Image) -> Image:
        """Draw the people's skeletons on their picture."""
        scale = max(1.0, _LEAST_SIDE / max(said.width, said.height))
        return with_skeletons(pixels, poses_of([*(said.people or ())], self.skeleton), self.skeleton, scale)
