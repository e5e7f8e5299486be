from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from podline.data.picture_sandbox import PictureFile
from podline.errors import SourceError
from podline.serving.dialect import (
    MAX_IMAGES,
    MAX_INPUT_PIXELS,
    RequestError,
    answered,
    asked,
    most_images,
    target_of,
)

SHAPE = (2, 3, 1)
IMAGE = np.arange(6, dtype=np.uint8).reshape(SHAPE)
ROWS = IMAGE.tolist()


def decode(files: Sequence[PictureFile]) -> Iterator[np.ndarray]:
    for name, data in files:
        if len(data) != IMAGE.size:
            raise SourceError(f"{name} is no picture")
        yield np.frombuffer(data, np.uint8).reshape(SHAPE)


def images(document) -> np.ndarray:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return asked(body, "images", SHAPE, decode).images


PICTURE = {"b64": base64.b64encode(IMAGE.tobytes()).decode()}


@pytest.mark.parametrize(
    "document",
    [
        {"instances": [ROWS, ROWS]},
        {"instances": [{"images": ROWS}, {"images": ROWS}]},
        {"instances": [PICTURE, PICTURE]},
        {"instances": [{"images": PICTURE}, ROWS]},
        {"inputs": [ROWS, ROWS]},
        {"inputs": {"images": [ROWS, ROWS]}},
        {"inputs": {"images": [PICTURE, PICTURE]}, "signature_name": "serve"},
    ],
)
def test_images_come_by_row_by_column_and_as_files(document):
    found = images(document)
    assert found.dtype == np.uint8
    assert np.array_equal(found, [IMAGE, IMAGE])


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (b"{", "JSON Parse error: Expecting property name"),
        (b"\xff", "JSON Parse error: 'utf-8' codec"),
        (b"[" * 100_000, "JSON Parse error: "),
        ([1], r"the body must be a JSON object vs \[1\]"),
        ({}, "one of 'instances' and 'inputs' must be there$"),
        ({"instances": [ROWS], "inputs": [ROWS]}, "one of 'instances' and 'inputs' must be there vs both"),
        ({"instances": []}, r"'instances' must be a list of at least one image vs \[\]"),
        ({"instances": 3}, "'instances' must be a list of at least one image vs 3"),
        ({"instances": [ROWS], "signature_name": 3}, "'signature_name' must be a string vs 3"),
        ({"instances": [{"pixels": ROWS}]}, r"instances\[0\] names the inputs \['pixels'\] vs \['images'\]"),
        ({"inputs": {"images": [ROWS], "more": 1}}, r"inputs names the inputs \['images', 'more'\] vs \['images'\]"),
        ({"instances": [ROWS, ROWS[:1]]}, r"instances is no array of the shape \(n, 2, 3, 1\)"),
        ({"instances": [ROWS[:1]]}, r"instances has the shape \(1, 1, 3, 1\) vs \(n, 2, 3, 1\)"),
        ({"instances": ROWS}, r"instances has the shape \(2, 3, 1\) vs \(n, 2, 3, 1\)"),
        ({"inputs": [[[[0], [1], [2]], [[3], [4], [256]]]]}, "inputs has the value 256 vs uint8, a whole number of 0"),
        ({"inputs": [[[[0], [1], [2]], [[3], [4], [-1]]]]}, "inputs has the value -1 vs uint8"),
        ({"inputs": [[[[0], [1], [2]], [[3], [4], [0.5]]]]}, "inputs has the value 0.5 vs uint8"),
        ({"inputs": [[[[0], [1], [2]], [[3], [4], ["5"]]]]}, "inputs has the value '5' vs uint8"),
        ({"inputs": [[[[0], [1], [2]], [[3], [4], [10**30]]]]}, "inputs has the value 1000000000"),
        ({"inputs": [[[[0], [1], [2]], [[3], [4], [None]]]]}, "inputs has the value None vs uint8"),
        ({"instances": [{"b64": "?"}]}, r"instances\[0\]: "),
        ({"instances": [{"b64": 3}]}, r"instances\[0\] must be an image or {'b64': STRING} vs {'b64': 3}"),
        ({"instances": [{"b64": "AAAA"}]}, r"instances\[0\] is no picture"),
        ({"instances": [ROWS, {"images": {"jpeg": "AAAA"}}]}, r"instances\[1\] must be an image or"),
    ],
)
def test_what_is_no_image_is_named_with_both_values(document, said):
    with pytest.raises(RequestError, match=said) as caught:
        images(document)
    assert caught.value.status == 400
    assert len(str(caught.value)) < 300


def test_a_request_holds_so_many_images():
    assert len(images({"instances": [ROWS] * MAX_IMAGES})) == MAX_IMAGES
    with pytest.raises(RequestError, match=f"{MAX_IMAGES + 1} images vs {MAX_IMAGES} at most"):
        images({"instances": [ROWS] * (MAX_IMAGES + 1)})
    assert 1 <= most_images((368, 368, 3)) * 368 * 368 <= MAX_INPUT_PIXELS


def test_an_output_has_a_name_only_beside_others():
    one, other = np.array([[0.5, 1.5], [2.5, np.nan]], np.float32), np.array([1, 2])
    assert json.dumps(json.loads(answered({"a": one}, by_row=True))) == '{"predictions": [[0.5, 1.5], [2.5, NaN]]}'
    assert json.loads(answered({"b": other}, by_row=False)) == {"outputs": [1, 2]}
    assert json.loads(answered({"a": one[:, :1], "b": other}, by_row=True)) == {
        "predictions": [{"a": [0.5], "b": 1}, {"a": [2.5], "b": 2}]
    }
    assert json.loads(answered({"a": one[:, :1], "b": other}, by_row=False)) == {
        "outputs": {"a": [[0.5], [2.5]], "b": [1, 2]}
    }


@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("GET", "/v1/models/m", ("m", None, None, "status")),
        ("GET", "/v1/models/m/versions/3", ("m", 3, None, "status")),
        ("GET", "/v1/models/m/metadata", ("m", None, None, "metadata")),
        ("GET", "/v1/models/m/labels/champion/metadata", ("m", None, "champion", "metadata")),
        ("POST", "/v1/models/m:predict", ("m", None, None, "predict")),
        ("POST", "/v1/models/m/versions/3:predict", ("m", 3, None, "predict")),
        ("POST", "/v1/models/m/labels/champion:classify", ("m", None, "champion", "classify")),
    ],
)
def test_a_path_names_a_model_a_version_and_what_is_asked(method, path, found):
    assert target_of(method, path) == found


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", "/"), ("GET", "/v1/models"), ("GET", "/v1/models/m:predict"), ("POST", "/v1/models/m")),
        *(("GET", "/v1/models/m/versions/x"), ("POST", "/v1/models/m/metadata:predict"), ("PUT", "/v1/models/m")),
    ],
)
def test_a_path_that_names_nothing_is_refused_as_tensorflow_serving_does(method, path):
    with pytest.raises(RequestError, match=f"^Malformed request: {method} {path}$"):
        target_of(method, path)
