"""docs/reference/recipe.md: every field of a recipe."""

from __future__ import annotations

from podline.kinds.classification.settings import ClassificationSettings
from podline.kinds.pose.settings import PoseSettings
from podline.recipes.phases import MAY_CHANGE
from podline.recipes.settings import Recipe
from reference import plain, table
from reference.fields import rows_of

HEAD = ("field", "default", "what it is")


def tables() -> dict[str, str]:
    rows = [row for row in rows_of(Recipe) if not row[0].startswith("`task")]
    inner = {row[0].partition(".")[0] + "`" for row in rows if "." in row[0]}
    found = {"The recipe": table(HEAD, (row for row in rows if "." not in row[0] and row[0] not in inner))}
    for name, default, text in (row for row in rows if row[0] in inner):
        about = f"{text[0].upper()}{text[1:]}" + (f" Default: {default}." if default else "")
        below = (row for row in rows if row[0].startswith(f"{name[:-1]}."))
        found[name] = f"{plain(about)}\n\n{table(HEAD, below)}"
    for task in (ClassificationSettings, PoseSettings):
        kind = task.model_fields["kind"].default
        below = (row for row in rows_of(task, "task.") if row[0] != "`task.kind`")
        found[f"`task` of the kind {kind}"] = table(HEAD, below)
    changing = ", ".join(
        f"`{path}`" for path in (*MAY_CHANGE, *ClassificationSettings.may_change, *PoseSettings.may_change)
    )
    return found | {"What phases may change": f"These values, and what is below them: {changing}."}
