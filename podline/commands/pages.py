"""Makes help pages from docstrings: wraps paragraphs, and keeps indented ones (commands to type) unchanged."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import click

SETTINGS = {"max_content_width": 100, "help_option_names": ["-h", "--help"]}
# The mark that keeps click from wrapping a paragraph.
_VERBATIM = "\b\n"
# In a checkout a link to its docs/; in a wheel a folder.
DOCS = (Path(__file__).parents[1] / "docs").resolve()
_PAGE = re.compile(r"(?<![\w/.-])docs/(?=[a-z-]+/[a-z-]+\.md)")


def page(text: str) -> str:
    """Return a docstring as text for click's help."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(_VERBATIM + text if text.startswith("  ") else text for text in paragraphs)


def located(text: str) -> str:
    """Return a text in which each page of docs/ has its path on this machine."""
    return _PAGE.sub(lambda _: f"{DOCS}/", text)


class _Located(click.Command):
    """A command whose help page says where the pages are that it names."""

    def get_help(self, ctx: click.Context) -> str:
        """Return the help page, with the place of docs/ as its last line."""
        text = super().get_help(ctx)
        return f"{text}\n\nThe folder docs/ is {DOCS}." if "docs/" in text else text


class Command(_Located):
    """A command with such a help page."""

    def __init__(self, *arguments: Any, help: str | None = None, **options: Any) -> None:  # noqa: A002 (click's name)
        super().__init__(*arguments, help=page(help or ""), **{"context_settings": SETTINGS, **options})

    def get_short_help_str(self, limit: int = 45) -> str:  # noqa: ARG002 (a list wraps the sentence)
        """Return the first sentence, for a group's list."""
        return re.split(r"(?<=[.;:]) |\n\n", self.help or "")[0].replace("\n", " ").rstrip(";:")


class Group(_Located, click.Group):
    """A group of such commands, with such a help page."""

    command_class = Command

    def __init__(self, *arguments: Any, help: str | None = None, **options: Any) -> None:  # noqa: A002 (click's name)
        super().__init__(*arguments, help=page(help or ""), **{"context_settings": SETTINGS, **options})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names; for an unknown name, suggest the nearest."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            from podline.settings.machine import nearest  # noqa: PLC0415 (not for --help)

            ctx.fail(f"there is no command {name!r}; {nearest(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return all names in the order of their addition."""
        return list(self.commands)
