"""Data sets by name: those that Podline ships, and those of installed packages.

A package adds one by the entry point ``podline.datasets``, a :class:`DataSet`; docs/how-to/data-set.md has an example.
What belongs to a data set is named as ``module:name`` and imported where it is used: recipes, forms and the command
line learn its name and kind without NumPy, OpenCV or whatever reads its files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError

from podline import entry_points
from podline.errors import SettingsError
from podline.frozen import Frozen, Json
from podline.kinds.shipped import DATA_SETS, USUAL_KIND
from podline.recipes.parts import Registry
from podline.settings import nearest

ENTRY_POINTS = "podline.datasets"
DatasetName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
"""A data set's name: also a folder's in the store, and the beginning of its files' names."""
OWN = "."
"""Between a name and one's own, as in images.flowers."""
# It becomes a folder's, and twelve digits of a hash at its end would make it a run's.
_OWN_NAME = re.compile(r"(?!.*-[0-9a-f]{12}$)[a-z0-9][a-z0-9_-]*")


class ConverterSettings(Frozen):
    """The base class of settings that only one data set's conversion has; most have none.

    A name must be none of :class:`podline.stages.specs.ConvertSpec`'s own: in a spec's JSON they stand side by side.
    """

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders that are read beside the source, relative to it."""
        return ()

    @property
    def code(self) -> dict[str, str]:
        """Return the digests of installed code that reads a source beside the data set's own."""
        return {}

    def converter(self) -> dict[str, int | str]:
        """Return the settings that a converted data set's bytes depend on; part of fingerprint and manifest."""
        values = self.model_dump(mode="json")
        return {name: value if type(value) in (int, str) else json.dumps(value) for name, value in values.items()}


class UnknownSettings(ConverterSettings):
    """The settings of a data set whose package is not installed, as they were written."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True)
class DataSet:
    """A data set that recipes can name.

    Functions and classes are given by name, ``module:name``.

    Attributes:
        name: see :data:`DatasetName`.
        open: ``(dataset, source, settings, work) -> RawData``: opens raw data, given this object, the folder, file or
            ``gs://`` prefix that the user named, the settings, and the cache folder for unpacked files. A
            :class:`podline.data.sources.source.Source` is a RawData; :mod:`podline.data.sources.decoded` makes one of
            whatever gives images. What it raises is told in one line.
        kind: the kind of task that its records are for; see :mod:`podline.recipes.task`.
        settings: a subclass of :class:`ConverterSettings`.
        version: of the code that reads it; raise it when that code changes a byte of what is written. 0 is left out.
        image_shape: (height, width, channels) of every image, where that is known beforehand.
        classes: how many there are, where that is known beforehand.
        draw: ``(folder, train=…, test=…, seed=…) -> Path``: draws a sample of the data set, fit to be its source.
        drawn: what is in that folder once it is drawn.
        published: a :class:`podline.data.official.Published`: where it can be downloaded, and its files' checksums.
        several: whether it is everybody's own, so that each has a name after a dot: ``images.flowers``. Its bytes and
            its fingerprint do not depend on that name.
    """

    name: str
    open: str
    kind: str = USUAL_KIND
    settings: str = "podline.recipes.datasets:ConverterSettings"
    version: int = 0
    image_shape: tuple[int, int, int] | None = None
    classes: int | None = None
    draw: str = ""
    drawn: str = ""
    published: str = ""
    several: bool = False

    @property
    def base(self) -> str:
        """The name without one's own: images, of images.flowers."""
        return self.name.partition(OWN)[0] if self.several else self.name

    def code(self, place: str) -> Any:
        """Return the object that one of its names, ``module:name``, refers to.

        Raises:
            SettingsError: it cannot be imported, or is not there.
        """
        try:
            return entry_points.load(place)
        except Exception as error:
            raise SettingsError(f"data set {self.name}: {place}: {entry_points.reason(error)}") from error

    def settings_of(self, given: Mapping[str, Json]) -> ConverterSettings:
        """Its own settings.

        Raises:
            SettingsError: one that it does not have, or a value that cannot be.
        """
        model: type[ConverterSettings] = self.code(self.settings)
        for name in given:
            if name not in model.model_fields:
                there = nearest(name, model.model_fields) if model.model_fields else "it has none of its own"
                raise SettingsError(f"{name}: the data set {self.name} has no such setting; {there}")
        try:
            return model.model_validate(dict(given))
        except ValidationError as error:
            raise SettingsError(f"data set {self.name}: {entry_points.reason(error)}") from None


DATASETS: Registry[DataSet] = Registry("data set", ENTRY_POINTS, DATA_SETS, DataSet)


def names() -> tuple[str, ...]:
    """Return the names of all data sets, shipped and installed.

    Raises:
        SettingsError: two have one name.
    """
    return (*DATA_SETS, *DATASETS.points())


def find(name: str) -> DataSet:
    """Return the data set called ``name``, in which the user's own name may follow a dot.

    Raises:
        SettingsError: there is no such data set, or the installed one cannot be loaded.
    """
    if name in DATA_SETS:  # whatever else there is
        return DATASETS.load(name)
    there = names()
    if name in there:
        return DATASETS.load(name)
    base, _, own = name.partition(OWN)
    if can_be_own(own) and base in there and (found := find(base)).several:
        return replace(found, name=name)
    raise SettingsError(f"there is no data set {name!r}; {nearest(name, there)}")


def can_be_own(name: str) -> bool:
    """Whether a name can come after the dot of :data:`OWN`."""
    return _OWN_NAME.fullmatch(name) is not None


def known(name: str) -> DataSet | None:
    """Return the data set of a name; None if its package is gone or cannot be loaded: its conversions stay."""
    try:
        return find(name)
    except SettingsError:
        return None


def settings_of(name: str, given: Mapping[str, Json]) -> ConverterSettings:
    """Return a data set's own settings; unchanged if the data set is unknown.

    Raises:
        SettingsError: one that it does not have, or a value that cannot be.
    """
    dataset = known(name)
    return UnknownSettings.model_validate(dict(given)) if dataset is None else dataset.settings_of(given)
