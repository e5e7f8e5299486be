"""The settings of a pose recipe: targets, augmentation, network, decoding."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from podline.base.frozen import Frozen, JsonObject, omitted
from podline.documents.skeleton import SEVERAL, SUBJECTS, Pair
from podline.recipes.augmentations import Augmentation
from podline.recipes.model_settings import l2_has_layers
from podline.recipes.published_weights import PUBLISHED, Pretrained
from podline.recipes.task import TaskSettings

_LEAST_CELLS = 3  # along each axis of a map: a joint's place follows from three cells


class PoseTargetSettings(Frozen):
    """Settings of the targets: heatmaps and part affinity fields (PAFs).

    Attributes:
        stride: pixels of the input per cell of the maps, a multiple of 4.
        joint_sigma: standard deviation of a joint's Gaussian, in pixels of the input.
        limb_sigma: standard deviation across a limb and at its ends, in pixels of the input.
    """

    stride: int = Field(default=8, ge=4, le=32, multiple_of=4)
    joint_sigma: float = Field(default=7.0, gt=0, le=4096)
    limb_sigma: float = Field(default=7.0, gt=0, le=4096)


class PoseModelSettings(Frozen):
    """The pose network: a trunk, then stages that output PAFs, then stages that output heatmaps.

    Attributes:
        trunk: ``mobilenetv2``, with fresh weights; or ``efficientnet-lite0`` up to stride 16, with ImageNet's weights
            unless the run begins with ``init`` or ``further``.
        width: factor for the channels of every layer of ``mobilenetv2``.
        features: number of channels of the feature map that all stages read.
        paf_stages: number of stages that output PAFs; each one refines the PAFs of the previous one. See ``subjects``.
        heatmap_stages: number of stages that output heatmaps; each reads the last PAFs and the previous heatmaps.
        stage_width: number of channels inside a stage.
        stage_depth: number of residual blocks in a stage.
        dropout: share of the values before a stage's output that training sets to zero.
        batch_norm: whether the stages have batch norm; the trunk and the neck always have it.
        l2: L2 penalty: the loss includes this factor times the sum of squares of each kernel in ``l2_layers``.
        l2_layers: prefixes of layer names; ``podline models describe`` lists the names.
    """

    trunk: Literal["mobilenetv2", "efficientnet-lite0"] = omitted("mobilenetv2")
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

    @model_validator(mode="after")
    def _published_for_one_width(self) -> PoseModelSettings:
        if self.trunk != "mobilenetv2" and self.width != 1:
            raise ValueError(
                f"trunk={self.trunk} has published weights for width=1 only, got width={self.width}; give width=1"
            )
        return self


class PoseAugmentationSettings(Augmentation):
    """Random augmentation of an image and its people, chosen for each example; off by default.

    Attributes:
        flip: mirror left and right with probability one half; None: mirror if the skeleton says which
            joints a mirror image swaps.
        rotation: rotate by up to this number of degrees.
        smallest: least factor of the random scale; the factor's logarithm is uniform.
        largest: greatest factor of the random scale.
        shift: move by up to this share of the side, along each axis.
        brightness: add or subtract up to this share of the full range.
        contrast: multiply differences from middle grey by a factor of 1 ± up to this value.
        saturation: multiply differences from a pixel's grey by a factor of 1 ± up to this value.
        image_size: side of training images, in pixels; 0 keeps the side of the records.
    """

    applied_by: ClassVar[str] = "podline.kinds.pose.augmentation:augmented"
    beside_images = "moved"

    flip: bool | None = False
    rotation: float = Field(default=0.0, ge=0, le=180)
    smallest: float = Field(default=1.0, gt=0, le=4)
    largest: float = Field(default=1.0, gt=0, le=4)
    shift: float = Field(default=0.0, ge=0, le=1)
    brightness: float = Field(default=0.0, ge=0, le=1)
    contrast: float = Field(default=0.0, ge=0, lt=1)
    saturation: float = Field(default=0.0, ge=0, le=1)
    image_size: int = omitted(0, ge=0, le=4096)

    @model_validator(mode="after")
    def _ordered(self) -> PoseAugmentationSettings:
        if self.smallest > self.largest:
            raise ValueError(f"smallest={self.smallest} must not be above largest={self.largest}; change either")
        return self

    @property
    def moves(self) -> bool:
        """Return whether any setting may move people in the image."""
        return self.flip is not False or bool(self.rotation or self.shift) or not self.smallest == self.largest == 1


class DecodingSettings(Frozen):
    """Settings for decoding maps into people.

    Attributes:
        peak_threshold: least height of a joint's peak in its heatmap.
        peaks_per_joint: number of a joint's highest peaks to use.
        samples: number of points along a limb at which its PAF is read.
        limb_threshold: least mean strength of the PAF along a limb, in the limb's direction.
        sample_threshold: least strength of the PAF at a share of the points, ``sample_share``.
        sample_share: share of the points at which the PAF must reach ``sample_threshold``.
        min_joints: least number of joints of a person, linked by limbs; a smaller group is a fragment.
        reach: largest distance, as a share of the person's diagonal, at which a fragment joins the nearest person that
            lacks its joints; other fragments are dropped.
    """

    peak_threshold: float = Field(default=0.1, gt=0, lt=1)
    peaks_per_joint: int = Field(default=30, ge=1, le=10_000)
    samples: int = Field(default=10, ge=2, le=1_000)
    limb_threshold: float = Field(default=0.15, ge=0, lt=1)
    sample_threshold: float = Field(default=0.05, ge=0, lt=1)
    sample_share: float = Field(default=0.7, ge=0, le=1)
    min_joints: int = Field(default=3, ge=1, le=1_000)
    reach: float = Field(default=0.5, ge=0)


class PoseSettings(TaskSettings):
    """The settings of pose recipes.

    Attributes:
        side: side of the network's square input, in pixels.
        max_people: number of people that a record can hold.
        subjects: ``one`` or ``several`` instances per image; None to choose by the annotations. With ``one``, the
            network has no PAFs, and each joint is at its heatmap's maximum.
        model: the network.
        targets: settings of the target maps.
        emphasis: the squared error of a cell is multiplied by 1 + emphasis × s, for a target of strength s (0 … 1).
        augmentation: random changes of training images.
        decoding: settings for decoding outputs into people.
        pck_joints: two joints of an instance, such as a shoulder and the hip of the other side, whose distance is the
            length for PCK; by default the diagonal of the box is.
    """

    common = ()
    judging = ("pck_joints",)
    may_change = ("task.augmentation", "task.emphasis", "task.targets.joint_sigma", "task.targets.limb_sigma")

    beside_loss = (
        "task.augmentation",
        *(
            f"task.model.{name}"
            for name in PoseModelSettings.model_fields
            if name not in ("paf_stages", "heatmap_stages")
        ),
    )

    kind: str = "pose"
    side: int = Field(default=368, ge=32, le=4096, multiple_of=8)
    max_people: int = Field(default=20, ge=1, le=127)
    subjects: Literal["one", "several"] | None = omitted(None)
    model: PoseModelSettings = PoseModelSettings()
    targets: PoseTargetSettings = PoseTargetSettings()
    emphasis: float = Field(default=0.0, ge=0, le=1000)
    augmentation: PoseAugmentationSettings = PoseAugmentationSettings()
    decoding: DecodingSettings = DecodingSettings()
    pck_joints: Pair | None = omitted(None)

    @model_validator(mode="after")
    def _whole_cells(self) -> PoseSettings:
        side, stride = self.side, self.targets.stride
        if side % stride:
            raise ValueError(f"side={side} must be a multiple of targets.stride={stride}; change either")
        if side < _LEAST_CELLS * stride:
            raise ValueError(
                f"side={side} must be at least {_LEAST_CELLS} times targets.stride={stride}, to refine joints within "
                "cells; change either"
            )
        return self

    @property
    def image_side(self) -> int:
        """Return the side of the network's input, in pixels."""
        return self.side

    @property
    def pretrained(self) -> Pretrained | None:
        """Return the trunk as a pretrained network, or None if the trunk has no published weights."""
        trunk = self.model.trunk
        if trunk not in PUBLISHED:
            return None
        return Pretrained(trunk, f"task.model.trunk={trunk}", "task.model.trunk=mobilenetv2")

    @property
    def asks_for_weights(self) -> str:
        """Return the command-line options with which a network begins with pretrained weights."""
        return "--set task.model.trunk=efficientnet-lite0 --set task.model.width=1"

    def on(self, facts: JsonObject) -> PoseSettings:
        """Return these settings for a data set: ``subjects`` is set; with ``one``, the network has no PAF stages."""
        subjects = self.subjects or facts.get(SUBJECTS, SEVERAL)
        model = self.model if subjects == "several" else self.model.model_copy(update={"paf_stages": 0})
        return self.model_copy(update={"subjects": subjects, "model": model})

    def conversion(self) -> JsonObject:
        """Return the settings of the conversion: the image size and the number of people per record."""
        return {"side": self.side, "max_people": self.max_people}
