from __future__ import annotations

import keras
import pytest

from podline.documents.skeleton import COCO
from podline.errors import SettingsError
from podline.kinds.pose.network import build_pose_model, pose_network, stage_names
from podline.kinds.pose.settings import PoseModelSettings

pytestmark = pytest.mark.usefixtures("few_layers")

SMALL = PoseModelSettings(width=0.35, features=16, stage_width=16, stage_depth=1)


def shapes(settings, side=368, stride=8):
    return {layer.name: tuple(layer.output.shape[1:]) for layer in pose_network(settings, side, stride, COCO).layers}


def sources(settings):
    """The layers that each layer reads."""
    network = pose_network(settings, 368, 8, COCO)
    names = {id(layer.output): layer.name for layer in network.layers}
    return {layer.name: tuple(names[id(each)] for each in keras.tree.flatten(layer.input)) for layer in network.layers}


@pytest.mark.parametrize(("pafs", "heatmaps"), [(1, 1), (2, 1), (4, 3), (8, 1)])
def test_stages_sort_in_the_order_of_computation(pafs, heatmaps):
    names = stage_names(PoseModelSettings(paf_stages=pafs, heatmap_stages=heatmaps))
    assert list(names) == sorted(names)
    assert [name.rpartition("_")[2] for name in names] == ["paf"] * pafs + ["heatmap"] * heatmaps


def test_answers_are_maps_of_the_stride():
    made = shapes(PoseModelSettings())
    assert [made[name] for name in stage_names(PoseModelSettings())] == [(46, 46, 40), (46, 46, 40), (46, 46, 18)]
    assert shapes(SMALL, side=128, stride=16)["stage3_heatmap"] == (8, 8, 18)


def test_the_neck_reads_the_last_map_of_each_resolution():
    made, read = shapes(PoseModelSettings()), sources(PoseModelSettings())
    assert [made[read[f"neck{number}_conv"][0]][0] for number in (1, 2, 3)] == [46, 23, 12]
    assert made["neck3_upsample"][:2] == (48, 48)
    assert made["neck3_crop"] == made["neck2_upsample"] == made["neck1_norm"] == (46, 46, 96)


def test_a_heatmap_stage_reads_the_last_pafs_and_the_heatmaps_before_it():
    wired = sources(PoseModelSettings(heatmap_stages=2))
    assert "stage1_paf_concatenate" not in wired
    assert wired["stage2_paf_concatenate"] == ("features_relu", "stage1_paf")
    assert wired["stage3_heatmap_concatenate"] == ("features_relu", "stage2_paf")
    assert wired["stage4_heatmap_concatenate"] == ("features_relu", "stage2_paf", "stage3_heatmap")


def test_dropout_and_batch_norm_are_optional():
    plain = pose_network(PoseModelSettings(batch_norm=False), 368, 8, COCO).layers
    assert not any(isinstance(layer, keras.layers.Dropout) for layer in plain)
    of_stages = [layer for layer in plain if layer.name.startswith("stage")]
    assert not any(isinstance(layer, keras.layers.BatchNormalization) for layer in of_stages)
    assert all(layer.use_bias for layer in of_stages if layer.name.endswith("conv"))
    full = pose_network(PoseModelSettings(dropout=0.1), 368, 8, COCO).layers
    assert sum(isinstance(layer, keras.layers.Dropout) for layer in full) == 3
    assert not any(layer.use_bias for layer in full if layer.name.startswith("stage") and layer.name.endswith("conv"))


@pytest.mark.parametrize(
    ("side", "stride", "message"),
    [(370, 8, "side=370 vs stride=8"), (384, 12, "stride=12 vs an input of 384"), (384, 64, "stride=64 vs an input")],
)
def test_sizes_that_cannot_be_are_refused(side, stride, message):
    with pytest.raises(SettingsError, match=message):
        pose_network(SMALL, side, stride, COCO)


def test_a_prefix_that_fits_no_layer_is_refused():
    with pytest.raises(SettingsError, match="no layer's name starts with 'stage9'"):
        build_pose_model(
            SMALL.model_copy(update={"l2": 0.1, "l2_layers": ("stage9",)}), 64, 8, COCO, [0.0] * 3, [1.0] * 3
        )
