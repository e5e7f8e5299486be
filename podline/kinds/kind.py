"""The contract of a kind of task: all that differs between classification and pose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from podline import entry_points
from podline.documents.any_evaluation import AnyEvaluation

if TYPE_CHECKING:
    from podline.documents.manifest import Manifest
    from podline.documents.metric import Metric
    from podline.documents.model_description import ModelDescription
    from podline.documents.skeleton import Skeleton
    from podline.progress import Reporter
    from podline.recipes.settings import Recipe
    from podline.store.contract import Store

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
        examples: what is counted of a split, in words.
        caption: of the chart of the measure that counts.
        lost: heading of the examples that another run got right; ``shown`` and ``lost`` are filled in.
        says: what a model does with such an example, in words; its run is filled in.
        lost_hint: what there is to see in their pictures.
        own_measures: whether measures of installed packages are computed for it.

        objective: what a recipe trains for on a data set: a :class:`podline.training.objective.Objective`.
        model: a recipe's Keras model with fresh weights.
        description: a model's layers and costs, of images of a shape, a number of classes, a skeleton.
        require_fit: raises SettingsError if a recipe does not fit a data set.
        judge: a run judged on a split, from a :class:`podline.evaluation.case.Case`: a ``Judgement`` of that module.
        reader: what looks at any pictures with a run's model: a :class:`podline.evaluation.predicting.PictureReader`.
        sheet: a picture sheet of a ``ShowSpec``; and a classifier's right answers.
        parts: figures of the classes or joints, by name.
        headline: what the top of a report says: a :class:`podline.reporting.verdict.Headline`.
        pair: two runs on the same examples, from :mod:`podline.reporting.pairs` as the next.
        lost_examples: what the second of a pair gets wrong and the first got right.
        answers: of models, for the rules of promotion: a :class:`podline.promotion.answers.Answers`.
    """

    name: str
    document: type[AnyEvaluation]
    examples: str
    caption: str
    lost: str
    says: str
    lost_hint: str
    own_measures: bool

    # Types of higher layers are not imported here, not even by name: a test compares the functions' own.
    objective: Code[..., Any]
    model: Code[[Recipe, Manifest], Any]
    description: Code[[Recipe, tuple[int, int, int], int, Skeleton], ModelDescription]
    require_fit: Code[[Recipe, Manifest], None]
    judge: Code[[Any], Any]
    reader: Code[[Store, Any, Manifest, float | None, Reporter], Any]
    sheet: Code[[Any, Store, Manifest, Reporter], tuple[Any, Any]]
    parts: Code[[Any], dict[str, Metric]]
    headline: Code[[Any], Any]
    pair: Code[[Store, Any, Any], Any]
    lost_examples: Code[[Any, Any, Any, Any], Any]
    answers: Code[[], Any]

    @property
    def measure(self) -> str:
        """The measure that says how good a model is."""
        return self.document.measure
