"""The contract of a kind of task: all that differs between classification and pose."""

# Keras tells no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from podline import entry_points
from podline.documents.any_evaluation import AnyEvaluation

if TYPE_CHECKING:
    import keras

    from podline.documents.manifest import Manifest
    from podline.documents.metric import Metric
    from podline.documents.model_description import ModelDescription
    from podline.documents.skeleton import Skeleton
    from podline.drawing.picture_sheet import Sheet
    from podline.evaluation.case import Case, Judgement
    from podline.evaluation.classification import ClassificationTally
    from podline.evaluation.predicting import PictureReader
    from podline.progress import Reporter
    from podline.promotion.comparing import ModelComparison
    from podline.promotion.rules import ModelFigures
    from podline.recipes.settings import Recipe
    from podline.reporting.facts import RunFacts
    from podline.reporting.pairs import Judged, LostExamples, Pair
    from podline.stages.specs import ReportSpec, TrainSpec
    from podline.stages.tools import ShowSpec
    from podline.store.contract import Store
    from podline.training.objective import Objective

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Code(Generic[P, R]):
    """A function of a higher layer by its name, ``module:name``, imported when it is called."""

    place: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls it."""
        return entry_points.load(self.place)(*args, **kwargs)


@dataclass(frozen=True)
class Kind:
    """A kind of task. Where its code is, is data: what asks for a name or a measure imports no TensorFlow.

    Attributes:
        name: as recipes and data sets say it.
        document: the model of its ``evaluation.json``.
        learns: what its recipes do, in words.
        examples: what is counted of a split, in words.
        caption: of the chart of the measure that counts.
        lost: heading of the examples that another run got right; ``shown`` and ``lost`` are filled in.
        says: what a model does with such an example, in words; its run is filled in.
        lost_hint: what there is to see in their pictures.

        objective: what a recipe trains for on a data set.
        model: a recipe's model with fresh weights.
        description: a model's layers and costs, of images of a shape, a number of classes, a skeleton.
        require_fit: raises SettingsError if a recipe does not fit a data set.
        judge: a run judged on a split.
        reader: what looks at any pictures with a run's model.
        sheet: a picture sheet; and a classifier's right answers.
        parts: figures of the classes or joints, by name.
        facts: what the report tells beside what it tells of every run.
        html: the report's page.
        markdown: its twin.
        pair: two runs on the same examples.
        lost_examples: what the second of a pair gets wrong and the first got right.
        figures: what the rules of promotion look at.
        comparison: two models for the rules of promotion.
    """

    name: str
    document: type[AnyEvaluation]
    learns: str
    examples: str
    caption: str
    lost: str
    says: str
    lost_hint: str

    objective: Code[[Recipe, Manifest], Objective]
    model: Code[[Recipe, Manifest], keras.Model]
    description: Code[[Recipe, tuple[int, int, int], int, Skeleton], ModelDescription]
    require_fit: Code[[Recipe, Manifest], None]
    judge: Code[[Case], Judgement]
    reader: Code[[Store, TrainSpec, Manifest, float | None, Reporter], PictureReader]
    sheet: Code[[ShowSpec, Store, Manifest, Reporter], tuple[Sheet, ClassificationTally | None]]
    parts: Code[[Any], dict[str, Metric]]
    facts: Code[[Store, ReportSpec, Manifest, Any, dict[str, Any]], RunFacts]
    html: Code[[Any], str]
    markdown: Code[[Any], str]
    pair: Code[[Store, Judged, Judged], Pair]
    lost_examples: Code[[Any, Any, Any, Any], LostExamples]
    figures: Code[[Any], ModelFigures]
    comparison: Code[[], ModelComparison]

    @property
    def measure(self) -> str:
        """The measure that says how good a model is."""
        return self.document.measure
