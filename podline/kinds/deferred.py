"""Methods of a kind whose code is imported when they are called: a kind's name and settings need no TensorFlow."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

Given = ParamSpec("Given")
R_co = TypeVar("R_co", covariant=True)


class Deferred:
    """A lazy module: the first call of one of its functions or classes imports it."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given, **named: getattr(importlib.import_module(self._module), name)(*given, **named)  # noqa: PLW0108 (not before it is called)


class Method(Protocol[Given, R_co]):
    """A function with the parameters of another after the instance."""

    def __call__(_this, self: Any, *given: Given.args, **named: Given.kwargs) -> R_co:  # noqa: N805 (self is the method's)
        """Return what the other function returns."""
        ...


def method(function: Callable[Given, R_co]) -> Method[Given, R_co]:
    """Make a method of a function, or of a class, that needs no instance."""
    return lambda self, *given, **named: function(*given, **named)  # noqa: ARG005
