"""The stages as Prefect tasks."""

from __future__ import annotations

from podline.stages.table import CONVERT, EVALUATE, LR_FIND, PACE, PROMOTE, REPORT, TRAIN, VALIDATE
from podline.tasks.stage_task import StageTask

convert = StageTask(CONVERT, "Raw archives become sharded TFRecords.")
validate = StageTask(VALIDATE, "Every byte of the data set is checked against its manifest.")
pace = StageTask(PACE, "How long the training may be within the minutes that were asked for.")
train = StageTask(TRAIN, "The recipe is trained; a run that was broken off goes on from its last checkpoint.")
evaluate = StageTask(EVALUATE, "The trained model is judged, every example once.")
promote = StageTask(
    PROMOTE, "The model is held against the champion of its recipe, and takes its place if it is shown not to be worse."
)
report = StageTask(REPORT, "One HTML page about the run, and the same in Markdown.")
find_learning_rate = StageTask(LR_FIND, "Training steps at a rising rate, and what their losses say of it.")
