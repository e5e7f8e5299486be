from __future__ import annotations

import pytest

from podline.errors import SettingsError
from podline.models.network import BatchNorm, Dropout
from podline.models.pose import pose_network, stage_names
from podline.recipes.pose_settings import PoseModelSettings

SMALL = PoseModelSettings(width=0.35, features=16, stage_width=16, stage_depth=1)


def shapes(settings, side=368, stride=8):
    network = pose_network(settings, side, stride)
    return {layer.name: layer.output_shape(shape) for layer, shape in network.shaped()}


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
    network = pose_network(PoseModelSettings(), 368, 8)
    made = shapes(PoseModelSettings())
    sources = [inputs[0] for layer, inputs in network.wired() if layer.name.startswith("neck") and "conv" in layer.name]
    assert [made[source][0] for source in sources] == [46, 23, 12]
    assert made["neck3_upsample"][:2] == (48, 48)
    assert made["neck3_crop"] == made["neck2_upsample"] == made["neck1_norm"] == (46, 46, 96)


def test_a_heatmap_stage_reads_the_last_pafs_and_the_heatmaps_before_it():
    wired = {
        layer.name: inputs
        for layer, inputs in pose_network(PoseModelSettings(heatmap_stages=2), 368, 8).wired()
    }  # fmt: skip
    assert "stage1_paf_concatenate" not in wired
    assert wired["stage2_paf_concatenate"] == ("features_relu", "stage1_paf")
    assert wired["stage3_heatmap_concatenate"] == ("features_relu", "stage2_paf")
    assert wired["stage4_heatmap_concatenate"] == ("features_relu", "stage2_paf", "stage3_heatmap")


def test_dropout_and_batch_norm_are_optional():
    plain = pose_network(PoseModelSettings(batch_norm=False), 368, 8).layers
    assert not any(isinstance(layer, Dropout) for layer in plain)
    assert not any(isinstance(layer, BatchNorm) for layer in plain if layer.name.startswith("stage"))
    assert all(layer.bias for layer in plain if layer.name.startswith("stage") and layer.name.endswith("conv"))
    full = pose_network(PoseModelSettings(dropout=0.1), 368, 8).layers
    assert sum(isinstance(layer, Dropout) for layer in full) == 3
    assert not any(layer.bias for layer in full if layer.name.startswith("stage") and layer.name.endswith("conv"))


@pytest.mark.parametrize(
    ("side", "stride", "message"),
    [(370, 8, "side=370 vs stride=8"), (384, 12, "stride=12 vs an input of 384"), (384, 64, "stride=64 vs an input")],
)
def test_sizes_that_cannot_be_are_refused(side, stride, message):
    with pytest.raises(SettingsError, match=message):
        pose_network(SMALL, side, stride)


def test_a_prefix_that_fits_no_layer_is_refused():
    with pytest.raises(SettingsError, match="no layer's name starts with 'stage9'"):
        pose_network(PoseModelSettings(l2=0.1, l2_layers=("stage9",)), 368, 8)
