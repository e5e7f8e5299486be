"""Spec and result of a prediction on any pictures."""

from __future__ import annotations

from pydantic import Field

from podline.documents.noun import PERSON, noun_of
from podline.frozen import Frozen, JsonObject
from podline.plurals import plural
from podline.stages.specs import Result, Spec, Where

JSON = "predictions.json"


_NAMED = 3


class PredictSpec(Spec):
    """A finished run, and pictures for its model to look at."""

    run: str
    images: tuple[str, ...] = Field(min_length=1, description="JPEG or PNG files, of any size")
    out: str = Field(
        description="a folder: predictions.json goes there and, of a pose network, a picture for each file"
    )
    threshold: float | None = Field(
        default=None, description="people with a lower score are left out; None is the one that the evaluation chose"
    )


class ClassShare(Frozen):
    """A class, and the probability that the model gives it."""

    name: str
    probability: float


class PicturePrediction(Frozen):
    """What a model says of one picture.

    Attributes:
        file: the picture's.
        width: of the picture, in pixels.
        height: of the picture, in pixels.
        picture: the file with skeletons drawn on it; None where the model names classes.
        people: COCO results, the surest first, with the file's name; None where the model names classes.
        classes: every class, the likeliest first; None where the model finds people.
        category: what it finds instead of people; empty for several categories.
    """

    file: str
    width: int
    height: int
    picture: str | None = None
    people: tuple[JsonObject, ...] | None = None
    classes: tuple[ClassShare, ...] | None = None
    category: str = Field(default=PERSON, exclude_if=lambda category: category == PERSON)

    def line(self) -> str:
        """Return what the model says of the picture."""
        if self.classes is not None:
            named = (f"{share.name} {100 * share.probability:.1f} %" for share in self.classes[:_NAMED])
            return f"{self.file}: {', '.join(named)}"
        noun = noun_of(self.category)
        return f"{self.file}: {plural(len(self.people or ()), noun.one, noun.many)} → {self.picture}"


class PredictResult(Result):
    """What a model says of some pictures, in their order; ``json_file`` has the same."""

    run: str
    json_file: str
    threshold: float | None
    pictures: tuple[PicturePrediction, ...]

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return a line for each picture, and the file."""
        return [*(picture.line() for picture in self.pictures), self.json_file]
