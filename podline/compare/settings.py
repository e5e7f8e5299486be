"""Lists the inputs that differ between runs and can change a result: settings, data, code, environment.

A difference is listed once, at its origin: a changed image is listed as a record, not again as a fingerprint, file and
split. Settings of the machine, kept checkpoints and promotion rules are left out, since they cannot change a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from podline.base.frozen import Frozen
from podline.base.plurals import plural
from podline.data.versions.version_changes import Change, in_words
from podline.documents.ledger_entry import CodeVersion, Data, Environment, Origin
from podline.ledger.alike import NO_PART_OF_TRAINING, same_code
from podline.settings.machine import flat

Area = Literal["settings", "data", "code", "environment"]
AREAS: tuple[Area, ...] = ("settings", "data", "code", "environment")
NONE = "–"
"""The text for a value that a run does not have."""

_COMMIT_DIGITS = 12
# Number of changed settings that a headline names.
_NAMED = 2
# Longest shown text of a value; the recipe's `few` would have thousands of letters.
_LETTERS = 200


class NamedDifference(Frozen):
    """A single difference between runs.

    Attributes:
        area: the area of the difference.
        name: a dotted name: ``schedule.learning_rate``, ``packages.numpy``, ``train``, or a file.
        values: the value of each run, as text; a long one is cut.
    """

    area: Area
    name: str
    values: tuple[str, ...]


def differing(origins: Sequence[Origin], changes: Callable[[Data, Data], Change]) -> list[NamedDifference]:
    """Return all differences between the inputs of some runs, in the order of :data:`AREAS`.

    Args:
        origins: the inputs of each run, at least one; an entry of the ledger is an origin too.
        changes: compares the splits of two versions of a data set, of the first run and of another one.
    """
    settings = [_settings(origin) for origin in origins]
    return [
        *rows("settings", settings),
        *_data_rows([origin.data for origin in origins], changes),
        *rows("code", _code([origin.code for origin in origins])),
        *rows("environment", [_environment(origin.environment) for origin in origins]),
    ]


def rows(area: Area, runs: Sequence[Mapping[str, Any]]) -> Iterator[NamedDifference]:
    """Yield a difference for each name whose values are not equal in all runs."""
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [_text(run[name]) if name in run else NONE for run in runs]
        if len(set(values)) > 1:
            shown = [value if len(value) <= _LETTERS else f"{value[:_LETTERS]} …" for value in values]
            yield NamedDifference(area=area, name=name, values=tuple(shown))


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return str(value)


def in_headline(differences: Sequence[NamedDifference]) -> str:
    """Return the differences of two runs in a few words, such as ``with 3 epochs in place of 10``; empty for none."""
    settings = [row for row in differences if row.area == "settings" and row.name not in ("seed", "recipe")]
    named = [_replaced(row) for row in settings[:_NAMED]]
    named += [plural(len(settings) - _NAMED, "more setting")] if len(settings) > _NAMED else []
    other = {row.area for row in differences if row.area in ("data", "code")}
    recipe = [row for row in differences if row.name == "recipe" and row.area == "settings"]
    phrases = [f"with {' and '.join(filter(None, [', '.join(named[:-1]), named[-1]]))}"] if named else []
    phrases += [f"by recipe {row.values[1]} in place of {row.values[0]}" for row in recipe]
    phrases += [words for area, words in (("data", "on other data"), ("code", "with other code")) if area in other]
    if not phrases and differences:
        return "with another seed" if any(row.name == "seed" for row in differences) else "in another environment"
    return ", ".join(phrases)


def _replaced(row: NamedDifference) -> str:
    before, after = (value.removesuffix(".0") for value in row.values[:2])
    group, _, unit = row.name.rpartition(".")
    if group == "duration" and NONE not in row.values and "none" not in row.values:
        return f"{after} {unit.removesuffix('s') if after == '1' else unit} in place of {before}"
    return f"{row.name}={after} in place of {before}"


def _settings(origin: Origin) -> dict[str, Any]:
    ignored = NO_PART_OF_TRAINING | {"name"}
    given = origin.settings.get("recipe", {})
    return {"recipe": origin.recipe, **flat({name: value for name, value in given.items() if name not in ignored})}


def _code(codes: Sequence[CodeVersion]) -> list[dict[str, Any]]:
    """Return the code of each run as values by name; include the package's version only if a commit is unknown."""
    if all(same_code(codes[0], code) for code in codes):
        return []
    known = all(code.commit for code in codes)
    unchanged = dict.fromkeys((path for code in codes for path in code.changes), "as committed")
    found = list[dict[str, Any]]()
    for code in codes:
        base = {"commit": code.commit[:_COMMIT_DIGITS] or NONE} if any(each.commit for each in codes) else {}
        installed = {} if known else {"version": code.version, "sources": code.sources[:_COMMIT_DIGITS] or NONE}
        more = {"more changed files": code.more_changes} if code.more_changes else {}
        changes = {path: sha or "deleted" for path, sha in code.changes.items()}
        found.append({**unchanged, **base, **installed, **changes, **more})
    return found


def _environment(environment: Environment) -> dict[str, Any]:
    devices = " as ".join(filter(None, (environment.devices, environment.strategy)))
    packages = {f"packages.{name}": version for name, version in environment.packages.items()}
    values = {name: getattr(environment, name) for name in ("python", "platform", "machine", "cores", "memory")}
    return {**values, "devices": devices or NONE, **packages}


def _data_rows(data: Sequence[Data | None], changes: Callable[[Data, Data], Change]) -> Iterator[NamedDifference]:
    if len({(each.dataset, each.fingerprint) if each else None for each in data}) == 1:
        return
    first = data[0]
    if first is None or any(each is None or each.dataset != first.dataset for each in data):
        names = [f"{each.dataset} {each.fingerprint}" if each else NONE for each in data]
        yield NamedDifference(area="data", name="dataset", values=tuple(names))
        return
    known = [each for each in data if each is not None]
    converter = list(rows("data", [flat({"converter": each.converter}) for each in known]))
    yield from converter
    moved = [changes(first, each) if each.fingerprint != first.fingerprint else {} for each in known]
    moved_rows = list(_moved_rows(known, moved))
    yield from moved_rows
    sources = tuple(each.source[:12] for each in known)
    # A compaction changes neither records nor source files.
    if not moved_rows and not converter and len(set(sources)) > 1:
        yield NamedDifference(area="data", name="source files of the same records", values=sources)


def _moved_rows(data: Sequence[Data], moved: Sequence[Change]) -> Iterator[NamedDifference]:
    if any(isinstance(change, str) for change in moved):
        values = [
            each.fingerprint if not isinstance(change, str) else f"{each.fingerprint} ({change})"
            for each, change in zip(data, moved, strict=True)
        ]
        yield NamedDifference(area="data", name="fingerprint", values=tuple(values))
        return
    changed = [change for change in moved if not isinstance(change, str)]
    for split in dict.fromkeys(split for change in changed for split in change):
        values = [
            in_words(change[split]) if split in change else f"{_records(each, split):,} records"
            for each, change in zip(data, changed, strict=True)
        ]
        yield NamedDifference(area="data", name=split, values=tuple(values))


def _records(data: Data, split: str) -> int:
    return data.splits[split].records if split in data.splits else 0
