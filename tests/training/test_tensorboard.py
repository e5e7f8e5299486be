from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from metrics_lines import steps_line
from tensorflow.core.util.event_pb2 import Event

from podline.documents import metrics_log
from podline.errors import StoreError
from podline.training import tensorboard
from podline.training.tensorboard import EventFile


def events(folder: Path) -> list[Event]:
    [file] = folder.iterdir()
    records: Any = tf.data.TFRecordDataset(str(file))
    return [Event.FromString(record.numpy()) for record in records]


def test_a_file_begun_again_holds_the_lines_that_are_left_at_the_times_they_were_written(tmp_path: Path):
    with EventFile(tmp_path / "board", []) as board:
        for step in (2, 4, 6):
            board.write(steps_line(step, 1.0, step))
    kept = [steps_line(2, 1.0, 2.0)]
    with EventFile(tmp_path / "board", kept) as board:
        board.write(steps_line(4, 1.0, 5.0))
    version, *rest = events(tmp_path / "board")
    assert version.file_version == "brain.Event:2"
    assert [(event.step, event.wall_time) for event in rest] == [(2, kept[0].time), (4, kept[0].time)]
    values = {value.tag: value.simple_value for value in rest[1].summary.value}
    assert values["train/loss"] == 3.0
    assert values["train/gradient_norm/classifier"] == 4.0
    assert values.keys() == {
        *(f"train/{name}" for name in metrics_log._FIGURES["train"]),
        *(f"train/gradient_norm/{block}" for block in ("stem", "classifier")),
    }


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_one_clear_line(tmp_path: Path):
    (tmp_path / tensorboard._FILE).symlink_to("/dev/full")
    with pytest.raises(StoreError, match=r"cannot write .*tfevents.* No space left on device; free some space"):
        EventFile(tmp_path, [])
