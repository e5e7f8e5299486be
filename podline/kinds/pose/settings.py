"""Settings of a pose recipe: targets, augmentation, network, decoding."""

from __future__ import annotations

import operator
from typing import ClassVar

from pydantic import Field, model_validator

from podline.frozen import Frozen, JsonObject
from podline.recipes.augmentations import Augmentation
from podline.recipes.settings import l2_has_layers
from podline.recipes.task import TaskSettings


class PoseTargetSettings(Frozen):
    """Heatmaps and part affinity fields (PAFs).

    Attributes:
        stride: pixels of the input to a cell of the maps.
        joint_sigma: standard deviation of a joint's Gaussian, in pixels of the input.
        limb_sigma: the same across a limb, and of its soft ends.
    """

    stride: int = Field(default=8, ge=1, le=32)
    joint_sigma: float = Field(default=7.0, gt=0)
    limb_sigma: float = Field(default=7.0, gt=0)


class PoseModelSettings(Frozen):
    """The pose network: MobileNetV2, then stages that answer with PAFs, then stages that answer with heatmaps.

    Attributes:
        width: multiplies the channels of every layer of the backbone.
        features: channels of the map that all stages read.
        paf_stages: stages that answer with PAFs; each but the first corrects the one before it.
        heatmap_stages: stages that answer with heatmaps; each reads the last PAFs and the heatmaps before it.
        stage_width: channels inside a stage.
        stage_depth: residual blocks in a stage.
        dropout: share of the values before a stage's answer that is set to zero in training.
        batch_norm: whether the stages have batch norm; the backbone always has.
        l2: L2 penalty: the loss gets this times the sum of squares of each kernel in ``l2_layers``.
        l2_layers: beginnings of the layers' names; ``podline models describe`` lists them.
    """

    width: float = Field(default=1.0, gt=0, le=8)
    features: int = Field(default=96, ge=8, le=1024)
    paf_stages: int = Field(default=2, ge=1, le=8)
    heatmap_stages: int = Field(default=1, ge=1, le=8)
    stage_width: int = Field(default=64, ge=8, le=1024)
    stage_depth: int = Field(default=3, ge=1, le=20)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    batch_norm: bool = True
    l2: float = Field(default=0.0, ge=0)
    l2_layers: tuple[str, ...] = ()

    _l2_has_layers = model_validator(mode="after")(l2_has_layers)


class PoseAugmentationSettings(Augmentation):
    """Random augmentation of an image and its people; each example has its own draws. All is off by default.

    Attributes:
        flip: mirror left and right with probability one half.
        rotation: turn by up to this many degrees.
        smallest: scale by a factor from here …
        largest: … to here, evenly in its logarithm.
        shift: move by up to this share of the side, along each axis.
        brightness: add or subtract up to this share of the full range.
        contrast: multiply differences from middle grey by 1 ± up to this.
        saturation: multiply differences from a pixel's grey by 1 ± up to this.
        image_size: side of the images that are trained on, in pixels; 0 keeps that of the records.
    """

    applied_by: ClassVar[str] = "podline.kinds.pose.augmentation:augmented"

    flip: bool = False
    rotation: float = Field(default=0.0, ge=0, le=180)
    smallest: float = Field(default=1.0, gt=0, le=4)
    largest: float = Field(default=1.0, gt=0, le=4)
    shift: float = Field(default=0.0, ge=0, le=1)
    brightness: float = Field(default=0.0, ge=0, le=1)
    contrast: float = Field(default=0.0, ge=0, lt=1)
    saturation: float = Field(default=0.0, ge=0, le=1)
    image_size: int = Field(default=0, ge=0, le=4096, exclude_if=operator.not_)

    @model_validator(mode="after")
    def _ordered(self) -> PoseAugmentationSettings:
        if self.smallest > self.largest:
            raise ValueError(
                f"smallest={self.smallest} vs largest={self.largest}: the smallest scale is the larger one"
            )
        return self

    @property
    def moves(self) -> bool:
        """Whether anything changes where people are."""
        return self.flip or bool(self.rotation or self.shift) or not self.smallest == self.largest == 1


class DecodingSettings(Frozen):
    """From maps to people.

    Attributes:
        peak_threshold: least height of a joint's peak in its heatmap.
        peaks_per_joint: how many of a joint's highest peaks are used.
        samples: points along a limb where its PAF is read.
        limb_threshold: least mean strength of the field along a limb, in its direction …
        sample_threshold: … and least strength at ``sample_share`` of the points.
        sample_share: see ``sample_threshold``.
        min_joints: least joints of a person, linked by limbs; fewer are a fragment.
        reach: a fragment joins the nearest person that lacks its joints, within this share of the person's diagonal;
            otherwise it is left out.
    """

    peak_threshold: float = Field(default=0.1, gt=0, lt=1)
    peaks_per_joint: int = Field(default=30, ge=1)
    samples: int = Field(default=10, ge=2)
    limb_threshold: float = Field(default=0.15, ge=0, lt=1)
    sample_threshold: float = Field(default=0.05, ge=0, lt=1)
    sample_share: float = Field(default=0.7, ge=0, le=1)
    min_joints: int = Field(default=3, ge=1)
    reach: float = Field(default=0.5, ge=0)


class PoseSettings(TaskSettings):
    """Settings of recipes of poses.

    Attributes:
        side: of the network's input, a square, in pixels.
        max_people: places for people in a record.
        model: the network.
        targets: what it is to answer.
        emphasis: in the loss, a map counts 1 + emphasis × s times where its target has strength s (0 … 1).
        augmentation: what chance does to training images.
        decoding: from answers to people.
    """

    common = ()
    may_change = ("task.augmentation", "task.emphasis", "task.targets.joint_sigma", "task.targets.limb_sigma")

    kind: str = "pose"
    side: int = Field(default=368, ge=32, le=4096, multiple_of=8)
    max_people: int = Field(default=20, ge=1, le=127)
    model: PoseModelSettings = PoseModelSettings()
    targets: PoseTargetSettings = PoseTargetSettings()
    emphasis: float = Field(default=0.0, ge=0, le=1000)
    augmentation: PoseAugmentationSettings = PoseAugmentationSettings()
    decoding: DecodingSettings = DecodingSettings()

    @model_validator(mode="after")
    def _whole_cells(self) -> PoseSettings:
        if self.side % self.targets.stride:
            raise ValueError(
                f"side={self.side} vs targets.stride={self.targets.stride}: the network's input must be whole cells"
            )
        return self

    @property
    def image_side(self) -> int:
        """Return the side of the network's input, in pixels."""
        return self.side

    def conversion(self) -> JsonObject:
        """Return the size of images and the places for people."""
        return {"side": self.side, "max_people": self.max_people}
