"""The facts about the kind with any number of labels per image."""

from podline.kinds.labels.document import LabelsEvaluation
from podline.kinds.labels.records import LabelTargets
from podline.kinds.labels.settings import LabelsSettings
from podline.recipes.kind_facts import KindFacts

LABELS = KindFacts(
    name="labels",
    settings=LabelsSettings,
    document=LabelsEvaluation,
    targets=LabelTargets(),
    kind="podline.kinds.labels.kind:LabelsKind",
    caption="mAP; bars are 95 % intervals (infinitesimal jackknife over images).",
    lost="All labels correct before, not now: {shown} of {lost}",
    says="labels predicted by {}",
)
