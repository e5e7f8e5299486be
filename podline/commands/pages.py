"""Makes help pages from docstrings: wraps paragraphs, except indented ones, which are commands to type."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import click

SETTINGS = {"max_content_width": 100, "help_option_names": ["-h", "--help"]}
# Click does not wrap a paragraph that starts with this.
_VERBATIM = "\b\n"
# In a checkout a symbolic link to docs/; in an installed package a folder.
DOCS = (Path(__file__).parents[1] / "docs").resolve()
_PAGE = re.compile(r"(?<![\w/.-])docs/(?=[a-z-]+/[a-z-]+\.md)")


def page(text: str) -> str:
    """Convert a docstring to click's help text."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(_VERBATIM + text if text.startswith("  ") else text for text in paragraphs)


def located(text: str) -> str:
    """Replace ``docs/`` by the path of that folder on this machine, wherever a text names a page."""
    return _PAGE.sub(lambda _: f"{DOCS}/", text)


class _Page(click.Command):
    """A command whose help page is made from a docstring; it ends with the path of docs/ if the page refers there."""

    def __init__(self, *arguments: Any, help: str | None = None, **options: Any) -> None:  # noqa: A002 (click's name)
        super().__init__(*arguments, help=page(help or ""), **{"context_settings": SETTINGS, **options})

    def get_help(self, ctx: click.Context) -> str:
        """Return the help page; if it refers to docs/, the last line is the path of docs/."""
        text = super().get_help(ctx)
        return f"{text}\n\nThe folder docs/ is {DOCS}." if "docs/" in text else text


class Command(_Page):
    """A command whose help page is made from its docstring."""

    def get_short_help_str(self, limit: int = 45) -> str:  # noqa: ARG002 (a list wraps the sentence)
        """Return the first sentence, for the list of commands."""
        return re.split(r"(?<=[.;:]) |\n\n", self.help or "")[0].replace("\n", " ").rstrip(";:")


class Group(_Page, click.Group):
    """A group of :class:`Command`, whose help page is made from its docstring."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first argument; suggest the nearest command for an unknown name."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            from podline.settings.machine import nearest  # noqa: PLC0415 (not for --help)

            ctx.fail(f"there is no command {name!r}; {nearest(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands in the order in which they were added, not sorted."""
        return list(self.commands)
