"""Types of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

Arrays = Mapping[str, Array]
"""Fields of records by name, (n, …)."""

Image = npt.NDArray[np.uint8]
"""Pixels, (height, width, channels)."""

Tensor: TypeAlias = Any
"""A tensor or variable in computations; untyped, since TensorFlow gives its operators no types."""
