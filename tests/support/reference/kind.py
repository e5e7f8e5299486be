"""docs/how-to/kind.md: what a kind of task declares and does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping

from podline.kinds.by_example.kind import ExampleKind, ImageKind
from podline.kinds.contract import Kind
from reference import attributes_of, table


def tables() -> dict[str, str]:
    """The attributes of the contract, its methods in their order, and what an ExampleKind adds to them."""
    methods = {name: each for name, each in vars(Kind).items() if inspect.isfunction(each)}
    added = {**vars(ImageKind), **vars(ExampleKind)}
    own = {name: each for name, each in added.items() if inspect.isfunction(each) and name not in methods}
    own |= {name: methods[name] for name in sorted(ExampleKind.__abstractmethods__ & methods.keys())}
    described = attributes_of(Kind)
    assert set(described) >= {name for name in inspect.get_annotations(Kind) if not name.startswith("_")}
    return {
        "What a kind declares": table(
            ("attribute", "meaning"), ((f"`{name}`", text) for name, text in described.items())
        ),
        "What a kind does": table(("method", "returns, or does"), rows(methods)),
        "What an ExampleKind leaves to write": table(("method", "returns, or does"), rows(own)),
    }


def rows(methods: Mapping[str, Callable[..., object]]) -> Iterator[tuple[str, str]]:
    """Each method with its arguments, and its purpose."""
    for name, method in methods.items():
        yield f"`{name}({', '.join([*inspect.signature(method).parameters][1:])})`", purpose(method)


def purpose(method: object) -> str:
    """The first paragraph of a method's docstring, without the verb that most begin with."""
    return " ".join((inspect.getdoc(method) or "").split("\n\n")[0].split()).removeprefix("Return ")
