from __future__ import annotations

import keras
import pytest

from podline.documents.skeleton import COCO
from podline.errors import SettingsError
from podline.kinds.pose.network import pose_network, stage_names
from podline.kinds.pose.settings import PoseModelSettings

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


def test_a_heatmap_stage_reads_the_last_pafs_and_the_heatmaps_before_it():
    wired = sources(PoseModelSettings(heatmap_stages=2))
    assert "stage1_paf_concatenate" not in wired
    assert wired["stage2_paf_concatenate"] == ("features_relu", "stage1_paf")
    assert wired["stage3_heatmap_concatenate"] == ("features_relu", "stage2_paf")
    assert wired["stage4_heatmap_concatenate"] == ("features_relu", "stage2_paf", "stage3_heatmap")


@pytest.mark.parametrize(
    ("side", "stride", "message"),
    [(370, 8, "side=370 vs stride=8"), (384, 12, "stride=12 vs an input of 384"), (384, 64, "stride=64 vs an input")],
)
def test_sizes_that_cannot_be_are_refused(side, stride, message):
    with pytest.raises(SettingsError, match=message):
        pose_network(SMALL, side, stride, COCO)
