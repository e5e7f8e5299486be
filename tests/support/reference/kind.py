"""docs/how-to/kind.md: what a kind of task declares and does."""

from __future__ import annotations

import inspect

from podline.kinds.contract import Kind
from reference import attributes_of, table


def tables() -> dict[str, str]:
    """The attributes of the contract, and its methods in their order."""
    methods = ((f"`{name}`", purpose(each)) for name, each in vars(Kind).items() if inspect.isfunction(each))
    described = attributes_of(Kind)
    assert set(described) >= {name for name in inspect.get_annotations(Kind) if not name.startswith("_")}
    return {
        "What a kind declares": table(
            ("attribute", "meaning"), ((f"`{name}`", text) for name, text in described.items())
        ),
        "What a kind does": table(("method", "purpose"), methods),
    }


def purpose(method: object) -> str:
    """The first paragraph of a method's docstring."""
    return " ".join((inspect.getdoc(method) or "").split("\n\n")[0].split())
