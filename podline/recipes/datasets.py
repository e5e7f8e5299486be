"""Finds data sets by name, Podline's and those of installed packages.

A package adds a data set by the entry point ``podline.datasets``, a :class:`DataSet`; docs/how-to/data-set.md has an
example. The code of a data set is given as ``module:name`` and imported only when it is used. So recipes, forms and the
command line have the name and kind of a data set without importing NumPy, OpenCV or parsers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError

from podline.base import entry_points
from podline.base.errors import SettingsError
from podline.base.frozen import Frozen, Json
from podline.documents.manifest import USUAL_KIND
from podline.recipes.bounds import NAME
from podline.recipes.parts import Registry
from podline.recipes.shipped import DATA_SETS
from podline.settings.machine import nearest

ENTRY_POINTS = "podline.datasets"
DatasetName = Annotated[str, Field(pattern=NAME)]
"""The name of a data set, of its folder in the store, and the start of its file names."""
OWN = "."
"""The separator between a data set's name and the user's own name, as in ``images.flowers``."""
# The name becomes a folder's name; twelve hexadecimal digits at its end would look like a run's name.
_OWN_NAME = re.compile(r"(?!.*-[0-9a-f]{12}$)[a-z0-9][a-z0-9_-]*")


class ConverterSettings(Frozen):
    """The base class of conversion settings that only one data set has.

    Names of settings must differ from the fields of :class:`podline.stages.specs.ConvertSpec`, because both are keys of
    the same JSON object.
    """

    @property
    def folders(self) -> tuple[str, ...]:
        """Return further folders that are read besides the source, as paths relative to the source."""
        return ()

    @property
    def code(self) -> dict[str, str]:
        """Return the digests of installed code that reads a source, besides the data set's own code."""
        return {}

    def converter(self) -> dict[str, int | str]:
        """Return the settings on which a converted data set's bytes depend, for fingerprint and manifest."""
        values = self.model_dump(mode="json")
        return {name: value if type(value) in (int, str) else json.dumps(value) for name, value in values.items()}


class UnknownSettings(ConverterSettings):
    """The unparsed settings of a data set whose package is not installed."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True)
class DataSet:
    """A data set that recipes can name.

    Functions and classes are given as ``module:name``.

    Attributes:
        name: see :data:`DatasetName`.
        open: ``(dataset, source, settings, work) -> Source``: opens raw data, given this object, the user's folder,
            file or ``gs://`` prefix, the settings, and the cache folder for unpacked files. Exceptions are reported in
            one line. :mod:`podline.data.sources.decoded` makes such a function from a function that returns images.
        kind: the kind of task; see :mod:`podline.recipes.task`.
        settings: a subclass of :class:`ConverterSettings`.
        version: version of the reading code; increase it when a change alters a byte of the data. 0 is omitted.
        image_shape: (height, width, channels) of every image, if known before the conversion.
        classes: number of classes, if known before the conversion.
        draw: ``(folder, train=…, test=…, seed=…) -> Path``: generates a synthetic source in a folder.
        drawn: description of the folder that ``draw`` generates.
        published: a :class:`podline.recipes.official.Published`: the address for downloads, and the files' checksums.
        several: whether users convert their own data under this name, with a user-chosen name after a dot:
            ``images.flowers``. Bytes and fingerprint do not depend on the user-chosen name.
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
        """The name without the user's own name: ``images`` for ``images.flowers``."""
        return self.name.partition(OWN)[0] if self.several else self.name

    def code(self, place: str) -> Any:
        """Import the object at ``place``, a ``module:name``.

        Raises:
            SettingsError: the object cannot be imported, or does not exist.
        """
        with entry_points.explained(f"data set {self.name}: {place}"):
            return entry_points.load(place)

    def settings_of(self, given: Mapping[str, Json]) -> ConverterSettings:
        """Parse the data set's own conversion settings.

        Raises:
            SettingsError: a setting is unknown, or its value is invalid.
        """
        model: type[ConverterSettings] = self.code(self.settings)
        for name in given:
            if name not in model.model_fields:
                there = nearest(name, model.model_fields) if model.model_fields else "it has no settings"
                raise SettingsError(f"{name}: the data set {self.name} has no such setting; {there}")
        try:
            return model.model_validate(dict(given))
        except ValidationError as error:
            raise SettingsError(f"data set {self.name}: {entry_points.reason(error)}") from None


DATASETS: Registry[DataSet] = Registry("data set", ENTRY_POINTS, DATA_SETS, DataSet)


def names() -> tuple[str, ...]:
    """Return the names of all data sets, Podline's first."""
    return DATASETS.names()


def find(name: str) -> DataSet:
    """Return the data set with this name, which may end in a dot and the user's own name.

    Raises:
        SettingsError: the data set does not exist, or its package cannot be loaded.
    """
    if name in DATA_SETS:  # independent of installed packages
        return DATASETS.load(name)
    there = names()
    if name in there:
        return DATASETS.load(name)
    base, _, own = name.partition(OWN)
    if can_be_own(own) and base in there and (found := find(base)).several:
        return replace(found, name=name)
    raise SettingsError(f"there is no data set {name!r}; {nearest(name, there)}")


def can_be_own(name: str) -> bool:
    """Return whether a name may follow the dot of :data:`OWN`."""
    return _OWN_NAME.fullmatch(name) is not None


def known(name: str) -> DataSet | None:
    """Return the data set with this name; None if its package is missing or fails: converted data remain readable."""
    try:
        return find(name)
    except SettingsError:
        return None


def settings_of(name: str, given: Mapping[str, Json]) -> ConverterSettings:
    """Parse a data set's own settings; keep those of an unknown data set unchanged.

    Raises:
        SettingsError: a setting is unknown, or its value is invalid.
    """
    dataset = known(name)
    return UnknownSettings.model_validate(dict(given)) if dataset is None else dataset.settings_of(given)
