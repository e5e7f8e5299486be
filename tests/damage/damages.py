"""Damages to one file of a finished store, and what a user who goes on working hears of them."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner
from finished_store import Finished

from podline.base.errors import PodlineError
from podline.base.progress import Reporter
from podline.cli import cli
from podline.stages.table import stage_of

KINDS = ("flip", "digit", "cut", "empty", "delete", "swap", "older")
COMMANDS = (
    ("store", "verify"),
    ("runs", "list", "--json"),
    ("models", "list", "--json"),
    ("models", "list", "cifar10"),
)
_VERIFY = "store verify"
# Every file is of the first kind that fits its name.
FILES = {
    "record": r".*/stages/[^/]+\.json",
    "entry": r"ledger/[^/]+\.json",
    "history": r"models/.*",
    "copy of a table of records": r"ledger/data/.*",
    "shard record": r"datasets/.*/shards/.*",
    "index": r"datasets/.*\.index\.npy",
    "shard": r"datasets/.*tfrecord.*",
    "data set": r"datasets/.*",
    "checkpoint": r"runs/.*/checkpoints/.*",
    "model": r"runs/.*/model/.*",
    "run": r"runs/.*",
    "search": r"finder/.*",
    "page": r".*",
}


class Damage(NamedTuple):
    """What was done to a file: its name in the store, how, and what it held."""

    name: str
    kind: str
    before: bytes
    after: bytes | None


def names(root: Path) -> list[str]:
    """The files of a store."""
    found = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.startswith(".podline/"))


def kind_of(name: str) -> str:
    """What a file is, of :data:`FILES`."""
    return next(kind for kind, pattern in FILES.items() if re.fullmatch(pattern, name))


def damages(store: Finished, seed: int) -> Iterator[Damage]:
    """Endless different damages, each kind of file as often as the others; none is done yet."""
    chance = random.Random(seed)
    groups: dict[str, list[str]] = {}
    for name in names(store.root):
        groups.setdefault(kind_of(name), []).append(name)
    while True:
        group = groups[chance.choice(sorted(groups))]
        name, kind = chance.choice(group), chance.choice(KINDS)
        before = (store.root / name).read_bytes()
        after = _damaged(store, chance, name, kind, before, group)
        if after != before:
            yield Damage(name, kind, before, after)


def _damaged(
    store: Finished, chance: random.Random, name: str, kind: str, before: bytes, group: list[str]
) -> bytes | None:
    if kind == "delete":
        return None
    if kind == "empty":
        return b""
    if kind == "cut":
        return before[: chance.randrange(max(1, len(before)))]
    if kind == "swap":
        return (store.root / chance.choice(group)).read_bytes()
    if kind == "older":
        path = store.before / name
        return path.read_bytes() if path.exists() else before
    places = [match.start() for match in re.finditer(rb"\d", before)] if kind == "digit" else range(len(before))
    if not places:
        return before
    place, changed = chance.choice(places), bytearray(before)
    changed[place] ^= 1 if kind == "digit" else 1 << chance.randrange(8)
    return bytes(changed)


class Heard(NamedTuple):
    """What a user is told: by command, exit code and output; and by stage, what looking for its result says."""

    said: dict[str, str]
    warned: dict[str, str]


def hear(store: Finished) -> Heard:
    """What a user who goes on working is told of a store."""
    said = {}
    for command in COMMANDS:
        result = CliRunner().invoke(cli, [*command, "--root", str(store.root)])
        shown = "" if result.exception is None or isinstance(result.exception, SystemExit) else f"{result.exception!r}"
        if result.exception is not None and not isinstance(result.exception, SystemExit | PodlineError):
            raise AssertionError(f"{command}: {shown}") from result.exception
        said[" ".join(command)] = f"{result.output}{shown}"
    warned = {}
    for number, spec in enumerate(store.specs):
        lines: list[str] = []
        reporter = Reporter("look", lambda event, lines=lines: lines.append(str(event)))
        try:
            found = stage_of(spec).find(spec, reporter)
        except PodlineError as error:
            found, _ = None, lines.append(str(error))
        warned[f"{number} {stage_of(spec).name}"] = f"{found!r} {lines}"
    return Heard(said, warned)


def harmless(damage: Damage) -> bool:
    """Whether docs/reference/store.md says of such a damage that it does no harm."""
    if damage.name in ("index.html", "podline-store.json") or damage.name.startswith("conversions/"):
        return True
    if damage.kind == "digit" and damage.after and damage.name.endswith(".json"):
        with contextlib.suppress(ValueError):  # the last digit of a number that has more than a float holds
            if json.loads(damage.before) == json.loads(damage.after):
                return True
    last = re.fullmatch(r"models/.*/history/000003\.json", damage.name)
    made_again = damage.name.endswith(("/origin.json", "/stages/validate.json"))
    if last or made_again or kind_of(damage.name) == "entry":
        return damage.kind in ("delete", "older")
    # An earlier record of the same work, which left the same files.
    return damage.kind == "older" and "/stages/" in damage.name


def judged(store: Finished, damage: Damage, whole: Heard) -> tuple[str, str]:
    """How a damage was met: ``problem``, ``note`` or ``silent``, by ``store verify``; and who else erred, if anybody.

    Whoever says something else than of the whole store must name the file, or the folder that it lies in.
    """
    path = store.root / damage.name
    if damage.after is None:
        path.unlink()
    else:
        path.write_bytes(damage.after)
    try:
        heard = hear(store)
    finally:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(damage.before)
    lines = heard.said[_VERIFY].splitlines()
    word = "silent"
    for line in lines:
        if _names(line, store.root, damage.name):
            note = line.startswith("note:")
            word = "problem" if not note or word == "problem" else "note"
    wrong = [
        f"{who}: {text}"
        for told, usual in zip(heard, whole, strict=True)
        for who, text in told.items()
        # A stage whose record is gone runs again.
        if text not in (usual[who], "None []") and not _names(text, store.root, damage.name) and who != _VERIFY
    ]
    return word, "\n".join(wrong)


def _names(text: str, root: Path, name: str) -> bool:
    """Whether a text names a file, or a folder of its own that it lies in."""
    parts = name.split("/")
    places = ["/".join(parts[:depth]) for depth in range(2, len(parts) + 1)] if len(parts) > 2 else [name]
    return any(re.search(rf"{re.escape(str(root / place))}(?![\w/-]|\.\w)", text) for place in places)
