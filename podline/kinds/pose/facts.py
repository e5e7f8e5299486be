"""The facts about the kind of people and their joints."""

from podline.kinds.pose.document import PoseEvaluation
from podline.kinds.pose.records import PeopleTargets
from podline.kinds.pose.settings import PoseSettings
from podline.recipes.kind_facts import KindFacts

POSE = KindFacts(
    name="pose",
    settings=PoseSettings,
    document=PoseEvaluation,
    targets=PeopleTargets(),
    kind="podline.kinds.pose.kind:PoseKind",
    examples="people",
    caption="COCO’s AP over OKS 0.50…0.95, by pycocotools; bars are 95 % intervals (bootstrap over images).",
    lost="Found before, not now: the {shown} images that lost the most joints",
    says="instances found by {}",
    lost_hint="; a frame marks an instance, a ring marks a joint that only the first model finds",
    large_pictures=True,
    own_measures=False,
)
