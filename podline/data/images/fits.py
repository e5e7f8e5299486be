"""Names of the ways in which a picture is fitted into a square."""

from __future__ import annotations

from typing import Literal

Fit = Literal["letterbox", "crop", "squeeze"]
