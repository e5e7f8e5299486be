"""The facts about the kind with one class per image."""

from podline.kinds.classification.document import Evaluation
from podline.kinds.classification.records import ClassTargets
from podline.kinds.classification.settings import ClassificationSettings
from podline.recipes.kind_facts import KindFacts

CLASSIFICATION = KindFacts(
    name="classification",
    settings=ClassificationSettings,
    document=Evaluation,
    targets=ClassTargets(),
    kind="podline.kinds.classification.kind:ClassificationKind",
    caption="Accuracy; bars are 95 % intervals (Wilson).",
    lost="Correct before, wrong now: {shown} of {lost}",
    says="class predicted by {}",
    # Measured (benchmarks/RESULTS.md). Fewer classes: six trainings on 150 images differ by 0.9 points at 66 %;
    # sampling noise explains 0.6. Ten classes: seeds of the cifar10 recipes differ by 0.1 to 0.2 points at 90 %,
    # including sampling noise.
    seed_spreads=((0, 0.007, 0.012), (10, 0.0025, 0.012)),
)
