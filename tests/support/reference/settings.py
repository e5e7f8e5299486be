"""docs/reference/settings.md: every setting of a machine."""

from __future__ import annotations

from pydantic.fields import FieldInfo

from podline.settings import machine as settings
from reference import table


def tables() -> dict[str, str]:
    rows = [row(key, field) for key, field in settings.keys().items()]
    of_tpu = [each for each in rows if each[0].startswith("`tpu.")]
    head = ("setting", "default", "meaning")
    return {"Settings": table(head, (each for each in rows if each not in of_tpu)), "The TPU": table(head, of_tpu)}


def row(key: str, field: FieldInfo) -> tuple[str, str, str]:
    shown = "to be given" if field.is_required() else written_of(field.default)
    return f"`{key}`", shown, field.description or ""


def written_of(default: object) -> str:
    """A default as a settings file has it."""
    named = {None: "none", "": "none", True: "true", False: "false"}
    if isinstance(default, tuple):
        return " ".join(default) or "none"
    return named[default] if isinstance(default, bool) or default in (None, "") else f"{default}".removesuffix(".0")
