"""Requests and answers of TensorFlow Serving's REST API, as values. Needs no TensorFlow.

https://www.tensorflow.org/tfx/serving/api_rest is what it follows; docs/serving.md tells where it goes further.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.picture_sandbox import PictureFile
from podline.errors import SourceError

Images = npt.NDArray[np.uint8]
Outputs = Mapping[str, npt.NDArray[Any]]
Decode = Callable[[Sequence[PictureFile]], Iterable[Images]]

MAX_IMAGES = 128
"""Images of a request."""

MAX_INPUT_PIXELS = 4_000_000
"""Pixels of a request's images, as the model takes them: their answers take more memory than they do."""

_MODELS = re.compile(
    r"/v1/models/(?P<model>[^/:]+)(?:/versions/(?P<version>\d{1,18})|/labels/(?P<label>[^/:]+))?"
    r"(?:(?P<metadata>/metadata)|:(?P<verb>[a-z]+))?"
)


class RequestError(Exception):
    """A request that gets no answer; ``status`` is HTTP's."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Target(NamedTuple):
    """What a path names: a model, perhaps one version of it, and what is asked of it.

    Attributes:
        model: its name.
        version: its number; None if it is not named by it.
        label: likewise.
        verb: ``status``, ``metadata``, ``predict`` …
    """

    model: str
    version: int | None
    label: str | None
    verb: str

    def __str__(self) -> str:
        """The model as TensorFlow Serving's errors name it."""
        return f"Latest({self.model})" if self.version is None else f"Specific({self.model}, {self.version})"


class Asked(NamedTuple):
    """A request for predictions.

    Attributes:
        images: (n, height, width, channels).
        by_row: answered by row, else by column.
        signature: the one that was named; empty for the default one.
    """

    images: Images
    by_row: bool
    signature: str


def target_of(method: str, path: str) -> Target:
    """What a request's method and path name.

    Raises:
        RequestError: nothing.
    """
    found = _MODELS.fullmatch(path)
    verb = found and (found["verb"] or ("metadata" if found["metadata"] else "status"))
    if not found or not verb or method != ("POST" if found["verb"] else "GET"):
        raise RequestError(f"Malformed request: {method} {path}")
    version = None if found["version"] is None else int(found["version"])
    return Target(found["model"], version, found["label"], verb)


def asked(body: bytes, name: str, shape: tuple[int, ...], decode: Decode) -> Asked:
    """The images that a body of ``:predict`` holds.

    Args:
        body: JSON.
        name: of the model's one input.
        shape: of an image, (height, width, channels).
        decode: from pictures' files to images of this shape.

    Raises:
        RequestError: it is not what it must be, or holds too much.
    """
    document = _document(body)
    keys = [key for key in ("instances", "inputs") if key in document]
    if len(keys) != 1:
        raise RequestError("one of 'instances' and 'inputs' must be there" + " vs both" * (len(keys) == 2))
    signature = document.get("signature_name", "")
    if not isinstance(signature, str):
        raise RequestError(f"'signature_name' must be a string vs {_shown(signature)}")
    values, by_row = document[keys[0]], keys[0] == "instances"
    if by_row and isinstance(values, list):
        values = [_named(value, name, f"instances[{place}]") for place, value in enumerate(values)]
    elif not by_row:
        values = _named(values, name, "inputs")
    if not isinstance(values, list) or not values:
        raise RequestError(f"'{keys[0]}' must be a list of at least one image vs {_shown(values)}")
    most = most_images(shape)
    if len(values) > most:
        raise RequestError(f"'{keys[0]}' has {len(values):,} images vs {most} at most; send fewer at once")
    return Asked(_images(values, keys[0], shape, decode), by_row, signature)


def most_images(shape: tuple[int, ...]) -> int:
    """Return how many images of a shape (height, width, channels) a request may hold."""
    return max(1, min(MAX_IMAGES, MAX_INPUT_PIXELS // (shape[0] * shape[1])))


def answered(outputs: Outputs, *, by_row: bool) -> bytes:
    """The body of an answer; ``outputs`` has an array (n, …) by name.

    Where there is but one output its name is left out.
    """
    values = {name: np.asarray(output).tolist() for name, output in outputs.items()}
    if len(values) == 1:
        [columns] = values.values()
        return encoded({"predictions" if by_row else "outputs": columns})
    if not by_row:
        return encoded({"outputs": values})
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return encoded({"predictions": rows})


def encoded(document: Any) -> bytes:
    """A document as JSON; what is no finite number is ``NaN``, ``Infinity`` or ``-Infinity``, as in the dialect."""
    return json.dumps(document).encode()


def version_status(version: int, state: str, problem: str = "") -> dict[str, Any]:
    """A version in the answer to a question for a model's status."""
    status = {"error_code": "UNAVAILABLE" if problem else "OK", "error_message": problem}
    return {"version": str(version), "state": state, "status": status}


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"JSON Parse error: {error}") from None
    if not isinstance(document, dict):
        raise RequestError(f"the body must be a JSON object vs {_shown(document)}")
    return document


def _named(value: Any, name: str, where: str) -> Any:
    """A value that may be in an object, under the input's name."""
    if not isinstance(value, dict) or value.keys() == {"b64"}:
        return value
    if value.keys() != {name}:
        raise RequestError(f"{where} names the inputs {_shown(sorted(value))} vs {_shown([name])} of the model")
    return value[name]


def _images(values: list[Any], where: str, shape: tuple[int, ...], decode: Decode) -> Images:
    files = {place: _file(value, f"{where}[{place}]") for place, value in enumerate(values) if isinstance(value, dict)}
    if not files:
        return _numbers(values, where, shape)
    images = np.empty((len(values), *shape), np.uint8)
    for place, value in enumerate(values):
        if place not in files:
            images[place] = _numbers([value], f"{where}[{place}]", shape)[0]
    try:
        images[list(files)] = list(decode(list(files.values())))
    except SourceError as error:
        raise RequestError(str(error)) from None
    return images


def _file(value: dict[str, Any], where: str) -> PictureFile:
    if value.keys() != {"b64"} or not isinstance(value["b64"], str):
        raise RequestError(f"{where} must be an image or {{'b64': STRING}} vs {_shown(value)}")
    try:
        return PictureFile(where, base64.b64decode(value["b64"], validate=True))
    except (binascii.Error, ValueError) as error:
        raise RequestError(f"{where}: {error}") from None


def _numbers(values: list[Any], where: str, shape: tuple[int, ...]) -> Images:
    """Nested lists as uint8, the first dimension of any length."""
    try:
        found = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise RequestError(f"{where} is no array of the shape {_shape(('n', *shape))}: {error}") from None
    if found.shape[1:] != shape:
        raise RequestError(f"{where} has the shape {_shape(found.shape)} vs {_shape(('n', *shape))}")
    if found.dtype.kind not in "iu" or found.min() < 0 or found.max() > 255:
        strange = next(value for value in _leaves(values) if type(value) is not int or not 0 <= value <= 255)
        raise RequestError(f"{where} has the value {_shown(strange)} vs uint8, a whole number of 0 to 255")
    return found.astype(np.uint8)


def _leaves(values: Any) -> Iterator[Any]:
    if isinstance(values, list):
        for value in values:
            yield from _leaves(value)
    else:
        yield values


def _shape(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
