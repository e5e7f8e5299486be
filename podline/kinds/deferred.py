"""Imports a kind's code on the first call of its methods, so that names and settings need no TensorFlow."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

Given = ParamSpec("Given")
R_co = TypeVar("R_co", covariant=True)


class Deferred:
    """A lazy module, imported by the first call of one of its functions or classes."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given, **named: getattr(importlib.import_module(self._module), name)(*given, **named)  # noqa: PLW0108 (not before it is called)


class Method(Protocol[Given, R_co]):
    """A method with the parameters of another function, after the instance."""

    def __call__(_this, self: Any, *given: Given.args, **named: Given.kwargs) -> R_co:  # noqa: N805 (self comes second)
        """Return the result of the other function."""
        ...


def method(function: Callable[Given, R_co]) -> Method[Given, R_co]:
    """Make a method from a function or class that needs no instance."""
    return lambda self, *given, **named: function(*given, **named)  # noqa: ARG005
