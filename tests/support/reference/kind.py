"""docs/how-to/kind.md: what a kind of task declares and gives."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping

from podline.contract.kind import Kind
from podline.kinds.by_example.hooks import ExampleHooks
from podline.kinds.by_example.kind import ExampleKind
from podline.recipes.kind_facts import KindFacts
from podline.report.kind_report import ReportedKind
from reference import attributes_of, table


def tables() -> dict[str, str]:
    methods, hooks = methods_of(Kind, ReportedKind), methods_of(ExampleHooks)
    described = attributes_of(KindFacts)
    assert set(described) == {field.name for field in dataclasses.fields(KindFacts)}
    left = {"objective": methods["objective"], **{name: each for name, each in hooks.items() if name not in methods}}
    assert ExampleKind.__abstractmethods__ <= left.keys()
    return {
        "What a kind declares": table(
            ("attribute", "meaning"), ((f"`{name}`", text) for name, text in described.items())
        ),
        "What a kind does": table(("method", "returns, or does"), rows(methods)),
        "What an ExampleKind gives": table(("method", "returns, or does"), rows(left)),
    }


def methods_of(*owners: type) -> dict[str, Callable[..., object]]:
    return {
        name: each
        for owner in owners
        for name, each in vars(owner).items()
        if inspect.isfunction(each) and not name.startswith("_")
    }


def rows(methods: Mapping[str, Callable[..., object]]) -> Iterator[tuple[str, str]]:
    for name, method in methods.items():
        yield f"`{name}({', '.join([*inspect.signature(method).parameters][1:])})`", purpose(method)


def purpose(method: object) -> str:
    """The first paragraph of a method's docstring, without the verb that most begin with."""
    return " ".join((inspect.getdoc(method) or "").split("\n\n")[0].split()).removeprefix("Return ")
