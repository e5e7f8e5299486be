from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from metrics_lines import steps_line
from tensorflow.core.util.event_pb2 import Event

from podline.documents import metrics_log
from podline.documents.metrics_log import EvaluationLine, EventLog, MetricsLog, StepsLine, read_events, read_metrics
from podline.errors import ArtifactError, StoreError
from podline.training import tensorboard
from podline.training.tensorboard import EventFile

EVALUATION = EvaluationLine(
    step=4, epoch=0.4, split="test", examples=10, loss=1.0, accuracy=0.3, seconds=0.1, time=1_700_000_001.0
)


def test_lines_come_back_as_they_were_written_float32_to_the_bit(tmp_path: Path):
    losses = np.random.default_rng(0).normal(size=3).astype(np.float32)
    with MetricsLog(tmp_path / "run" / "metrics.jsonl") as log:
        log.write(steps_line(3, *losses.tolist()))
        log.write(EVALUATION)
    train, evaluation = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert isinstance(train, StepsLine)
    assert np.array(train.losses, np.float32).tobytes() == losses.tobytes()
    assert evaluation == EVALUATION


def test_a_log_is_cut_back_to_a_mark_and_goes_on_as_if_nothing_had_been_after_it(tmp_path: Path):
    path, unbroken = tmp_path / "metrics.jsonl", tmp_path / "unbroken.jsonl"
    with MetricsLog(path) as log:
        log.write(steps_line(2, 1.0, 2.0))
        mark = log.mark()
        log.write(steps_line(4, 3.0, 4.0))
    with path.open("ab") as stream:
        stream.write(b'{"kind": "train", "st')  # the process was killed here
    with MetricsLog(path) as log:
        log.require(mark)
        log.cut(mark)
        log.write(EVALUATION)
        again = log.mark()
    with MetricsLog(unbroken) as log:
        log.write(steps_line(2, 1.0, 2.0))
        log.write(EVALUATION)
        assert log.mark() == again
    assert path.read_bytes() == unbroken.read_bytes()


def test_a_log_that_changed_before_the_mark_is_refused(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.write(steps_line(2, 1.0, 2.0))
        mark = log.mark()
        path.write_bytes(path.read_bytes().replace(b"1.0", b"1.1"))
        with pytest.raises(ArtifactError, match="no longer begins with"):
            log.require(mark)
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(ArtifactError, match="no longer begins with"):
            log.require(mark)


def test_a_line_without_its_end_is_no_line_and_a_wrong_one_is_named(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    good = json.dumps(EVALUATION.model_dump())
    path.write_text(good + "\n" + good[:-5])
    assert read_metrics(path) == [EVALUATION]
    path.write_text(good + '\n{"kind": "train"}\n')
    with pytest.raises(ArtifactError, match=r"metrics\.jsonl:2 is not a line of metrics"):
        read_metrics(path)
    with pytest.raises(StoreError, match="cannot read"):
        read_metrics(tmp_path / "nothing.jsonl")


def test_events_outlive_a_killed_process(tmp_path: Path):
    path = tmp_path / "events.jsonl"
    EventLog(path).write("started", 0, "from the beginning")
    with path.open("ab") as stream:
        stream.write(b'{"time": 17000')
    log = EventLog(path)
    log.write("restored", 20, "going on")
    assert [(line.event, line.step) for line in log.read()] == [("started", 0), ("restored", 20)]
    assert read_events(path) == log.read()
    assert EventLog(tmp_path / "new.jsonl").read() == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_one_clear_line_even_when_the_log_is_closed(tmp_path: Path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(StoreError, match=r"cannot write .*metrics\.jsonl: no space left"):  # noqa: SIM117
        with MetricsLog(tmp_path / "metrics.jsonl") as log:
            log.write(EVALUATION)
    (tmp_path / tensorboard._FILE).symlink_to("/dev/full")
    with pytest.raises(StoreError, match=r"cannot write .*tfevents.* No space left on device; free some space"):
        EventFile(tmp_path, [])


def events(folder: Path) -> list[Event]:
    [file] = folder.iterdir()
    records = tf.data.TFRecordDataset(str(file))
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
