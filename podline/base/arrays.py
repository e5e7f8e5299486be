"""Types of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

Arrays = Mapping[str, Array]
"""Name of a field → its values for n examples, (n, …)."""

Image = npt.NDArray[np.uint8]
"""Pixels, uint8 (height, width, channels)."""

Pixels = npt.NDArray[np.uint8]
"""Pixels of one or several images, uint8."""

Ids = npt.NDArray[np.int64]
"""Numbers of records or examples, (n,)."""

Floats = npt.NDArray[np.float64]

Tensor: TypeAlias = Any
"""A TensorFlow tensor or variable; Any, since TensorFlow's operators have no type annotations."""
