"""What texts name: commands, options, make targets, files, modules and settings; and what of it is not there.

A text is a page, a help text or message in a Python string, a template, a unit, a manifest or a script.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import click
from reference import ledger

from podline.base.errors import SettingsError
from podline.cli import cli
from podline.kinds.classification.settings import ClassificationSettings
from podline.kinds.pose.settings import PoseSettings
from podline.recipes import datasets, registry
from podline.recipes.parts import MODELS
from podline.recipes.settings import Recipe
from podline.settings import machine as settings
from podline.stages.options import TrainingGroup

PROJECT = Path(__file__).parents[2]
CODE = ("podline", "flows", "tasks", "beam_jobs", "deployments", "benchmarks")
PROJECTS = ("podline/commands/templates/", "podline/commands/init.py", "docs/how-to/project.md")
"""Texts about projects that `podline init` writes; their Makefile is the template."""

# What stands for a value: RUN, DIR/x, $ROOT, <n>, {name}, …, and what an f-string puts in.
OPEN = re.compile(r"[…$<>*%{]|\b[A-Z]+\b")
# At the start of a line, with a prompt or variables before it, or after another command.
COMMAND = re.compile(
    r"(?:(?:^|[;&|(] ?|\b(?:ExecStart|run|exec|srun)\b[^;&|]* )(?:[-$@>] ?|#  +|\w+=\S* )*)"
    r"(?:\S*bin/)?(?:podline|\$\(PODLINE\)|python -m podline\.cli) +(?=[a-z-])"
)
END = re.compile(r"[|&;<>)#].*|.*[);]$|[2&]>.*")
MAKE = re.compile(r"(?:^|[;&|] ?)(?:[-#$@] ?)?make +([a-z][\w-]*)")
FILE = re.compile(rf"(?<![\w./<>{{}}*$…-])(?:{'|'.join(CODE)}|docs|tests|\.ci|\.github)/[\w./*…<>-]*\w(?:#[\w-]+)?")
MODULE = re.compile(r"(?<![\w./-])(?:podline|benchmarks)(?:\.\w+)+(?![\w/-])")
VARIABLE = re.compile(r"\bPODLINE_[A-Z][A-Z_]*[A-Z]\b(?![…<{*])")
SETTING = re.compile(r"\b[Tt]he setting\s+\[?`{0,2}(?!and\b|is\b|of\b|that\b)[a-z_]+(?:\.[a-z_]+)*\b")
ASSIGNMENT = re.compile(r"(?<![\w./-])[a-z_]+(?:\.[a-z_]+)+(?==\S)")
DOTTED = re.compile(r"[a-z_]+(?:\.[a-z_]+)+")
FILES = ("json", "keras", "tflite", "toml", "prom", "env", "yaml", "service")
"""What a dotted name ends with, or has after its first dot, if it is a file's."""
# Read by docker-compose.yaml alone, from the .env beside it.
OF_COMPOSE = "PODLINE_RAW_DATA"
ELSEWHERE = frozenset({"model.save_weights", "podline.data.arrived", "--limit", "--python", "--keras", "--listen-fd"})
"""A method of Keras, an event that whoever adds data sends, options of Prefect, uv, a benchmark and our server."""
OF_THE_TREE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/explanation/architecture.md")
"""Pages on which a file's name alone is one of ours, not the reader's."""


class Text(NamedTuple):
    """A piece of text in a file; code is read line by line, prose by what is between backticks."""

    file: str
    line: int
    text: str
    is_code: bool

    def pieces(self) -> Iterator[tuple[int, str]]:
        """Yield code, each with its line: what is between backticks, or a line with its continuations."""
        if self.is_code:
            joined = re.sub(r"\\\n\s*", lambda match: " " + "\0" * match[0].count("\n"), self.text)
            number = self.line
            for line in joined.split("\n"):
                # A comment is prose, but for a command that is set in.
                yield number, re.sub(r"(?:^|\s)# \S.*|`[^`]*`", "", line.replace("\0", "")).strip()
                number += 1 + line.count("\0")
        for span in re.finditer(r"`+([^`]+)`+", self.text):
            yield self.line + self.text[: span.start()].count("\n"), " ".join(span[1].split())


def texts() -> Iterator[Text]:
    """Yield every text that somebody reads or that a machine is set up by."""
    for pattern in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md", "benchmarks/*.md"):
        for page in sorted(PROJECT.glob(pattern)):
            yield from of_markdown(page.read_text(), name_of(page))
    for folder in CODE:
        for module in sorted((PROJECT / folder).rglob("*.py")):
            yield from of_python(module.read_text(), name_of(module))
    for file in others():
        yield Text(name_of(file), 1, re.sub(r"\{\{ \w+ \}\}", "NAME", file.read_text()), is_code=True)


def name_of(file: Path) -> str:
    return f"{file.relative_to(PROJECT)}"


def others() -> Iterator[Path]:
    yield from (PROJECT / name for name in ("Makefile", "prefect.yaml", "pyproject.toml", "zensical.toml", ".ci/run"))
    yield from sorted((PROJECT / "podline/commands/templates/project").glob("*.template"))
    for folder in ("deployments", ".github"):
        files = (file for file in sorted((PROJECT / folder).rglob("*")) if file.is_file() and not file.is_symlink())
        yield from (file for file in files if file.suffix not in (".py", ".lock", ".pyc"))


def of_markdown(page: str, file: str) -> Iterator[Text]:
    """Yield a page's prose and its fenced code."""
    line = 1
    for number, part in enumerate(re.split(r"^ *```", page, flags=re.MULTILINE)):
        if number % 2:
            language, _, code = part.partition("\n")
            if language.strip() == "python":
                with contextlib.suppress(SyntaxError):
                    yield from (each._replace(line=line + each.line) for each in of_python(code, file))
            if language.strip() == "toml":
                code = "\n".join(f"[setting] {key}" for key in keys_of_settings(code)) or code
            yield Text(file, line + 1, code, is_code=True)
        else:
            yield Text(file, line, part, is_code=False)
        line += part.count("\n")


def keys_of_settings(toml: str) -> Iterable[str]:
    """Return the keys of a settings file; none for a file of another kind."""
    values = tomllib.loads(toml)
    return () if {"project", "build-system"} & values.keys() else settings.flat(values)


def of_python(source: str, file: str) -> Iterator[Text]:
    """Yield the strings of a module, those with values in them with … in their place, and its comments."""
    inner: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in ast.walk(node)}
            text = "".join(f"{part.value}" if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            text = node.value
        else:
            continue
        yield Text(file, node.lineno, text, is_code=False)
        for match in re.finditer(r"^ *(podline (?!on )[^`\n]*)$", text, re.MULTILINE):
            yield Text(file, node.lineno + text[: match.start()].count("\n"), match[1], is_code=True)
    for number, line in enumerate(source.splitlines(), 1):
        if comment := re.search(r"(?:^|\s)# (.*)", line):
            yield Text(file, number, comment[1], is_code=False)


def missing(text: Text) -> Iterator[str]:
    """Yield file, line and name of what a text names and what is not there."""
    for line, piece in text.pieces():
        found = (*of_commands(piece), *of_targets(piece, text.file), *of_values(piece))
        if not text.is_code:
            found = (*found, *of_words_alone(piece, text.file))
        yield from (f"{text.file}:{line}: {each}" for each in found)
    for look_up, pattern in LOOKED_UP.items():
        for match in pattern.finditer(text.text):
            if problem := look_up(match[0]):
                yield f"{text.file}:{text.line + text.text[: match.start()].count(chr(10))}: {problem}"


def of_commands(piece: str) -> Iterator[str]:
    """Yield what the command lines in a piece of code name in vain."""
    if listed := re.match(r"(?:command|args): \[(podline, [^]]+)\]", piece):
        piece = listed[1].replace(", ", " ")
    starts = [match.end() for match in COMMAND.finditer(piece)]
    for start, end in itertools.pairwise([*starts, None]):
        yield from _of_words(_words(piece[start:end]))


def _words(line: str) -> list[str]:
    """Return the words of a command line up to its end: a pipe, a comment, another command."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        words = line.split()
    ends = [number for number, word in enumerate(words) if END.match(word)]
    return words[: ends[0]] if ends else words


def _of_words(words: list[str]) -> Iterator[str]:
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        word = words.pop(0)
        if OPEN.search(word):
            return
        found = command.get_command(context, word)
        if found is None:
            yield f"no command {word!r} in `podline {command.name or ''}".replace(" cli", "") + "`"
            return
        command = found
    yield from _of_arguments(command, words)


def of_words_alone(piece: str, file: str) -> Iterator[str]:
    """Yield an option, a group's command or a file that prose names by itself, and that does not exist."""
    first, *others = piece.split() or [""]
    option = first.partition("=")[0]
    if re.fullmatch(r"--[a-z][\w-]+", option) and option not in every_option() | ELSEWHERE:
        yield f"no option {option} of any command"
    group = (
        cli.get_command(click.Context(cli), first) if others and others[0].isalpha() and others[0].islower() else None
    )
    if isinstance(group, click.Group) and others[0] not in group.commands:
        yield f"no command `{first} {others[0]}`"
    if file in OF_THE_TREE and re.fullmatch(r"[\w-]+\.(py|md|sh|lock|yaml|toml)", piece) and piece not in every_file():
        yield f"no file {piece}"


@functools.cache
def every_option() -> frozenset[str]:
    """Return the options of all commands."""

    def options(command: click.Command) -> Iterator[str]:
        yield from (flag for each in command.get_params(context) for flag in each.opts)
        if isinstance(command, click.Group):
            below = (command.get_command(context, name) for name in command.list_commands(context))
            yield from (flag for each in below if each for flag in options(each))

    context = click.Context(cli)
    return frozenset(options(cli))


@functools.cache
def every_file() -> frozenset[str]:
    """Return the names of the tree's files, without their folders."""
    folders = [PROJECT / name for name in (*CODE, "tests", "docs")]
    return frozenset(
        each.name for each in (*PROJECT.iterdir(), *(each for path in folders for each in path.rglob("*")))
    )


def of_tree(page: str) -> Iterator[str]:
    """Yield the files and folders that the drawn tree of a page has, and the project has not."""
    above: dict[int, str] = {}
    for line in page.partition("```\n")[2].partition("```")[0].splitlines():
        depth, name = len(line) - len(line.lstrip()), line.split()[0]
        above = {each: folder for each, folder in above.items() if each < depth}
        path = "/".join([*(folder.strip("/") for folder in above.values()), name])
        above[depth] = name
        if not (PROJECT / path).exists():
            yield f"no {path}"


def _of_arguments(command: click.Command, words: list[str]) -> Iterator[str]:
    options = {flag: each for each in command.get_params(click.Context(command)) for flag in each.opts}
    options |= {"--debug": click.Option(["--debug"], is_flag=True)}
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    recipe = next((word for word in words if word in registry.names()), None)
    places, assignments = 0, list[str]()
    while words:
        flag, equals, value = words.pop(0).partition("=")
        if not flag.startswith("-"):
            places += not re.search(r"[…$\[]", flag)
        elif flag not in options:
            if not OPEN.search(flag):
                yield f"no option {flag} of `podline … {command.name}`"
                return
        elif not getattr(options[flag], "is_flag", False):
            value = value if equals else words.pop(0) if words else "…"
            assignments += [f"model.kind={value}"] if flag == "--model" and recipe else []
            assignments += [value] if flag == "--set" else []
            yield from _of_value(command, options[flag], value)
    if places > len(arguments) and all(each.nargs == 1 for each in arguments):
        yield f"{places} arguments of `podline … {command.name}`, which takes {len(arguments)}"
    yield from _of_assignments(assignments, recipe)


def _of_value(command: click.Command, option: click.Parameter, value: str) -> Iterator[str]:
    if not OPEN.search(value) and not isinstance(option.type, click.Path):
        try:
            option.process_value(click.Context(command), (value,) if option.multiple else value)
        except (click.ClickException, SettingsError) as error:
            yield f"{option.opts[0]} {value}: {error}"


def _of_assignments(assignments: list[str], recipe: str | None) -> Iterator[str]:
    """Yield the values that no recipe has, but for dotted ones, and what a shipped recipe says of them all."""
    unknown = [path for path in map(_path, assignments) if not _is_value(path)]
    yield from (f"no value {path} of a recipe" for path in unknown if "." not in path)
    # Parts and their options may be those of a package that the page installs.
    open_ones = rf"[…$]|\.kind=(?!({'|'.join(MODELS.shipped)})$)|\.options\.|=[A-Z]"
    given = [each for each in assignments if not re.search(open_ones, each)]
    if recipe and not unknown and len(given) == len(assignments):
        try:
            registry.override(registry.get(recipe), TrainingGroup(assignments=tuple(given)).changes())
        except SettingsError as error:
            yield f"{error}"


def _path(assignment: str) -> str:
    return assignment.partition("=")[0]


def _is_value(path: str) -> bool:
    known = recipe_values()
    return bool(OPEN.search(path)) or path in known or any(path.startswith(f"{table}.options.") for table in known)


def of_targets(piece: str, file: str) -> Iterator[str]:
    """Yield the targets that a piece of code names and the Makefile has not."""
    for match in MAKE.finditer(piece):
        if match[1] not in targets(file):
            yield f"no target `make {match[1]}`"


@functools.cache
def _targets_of(makefile: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z][\w-]*):", makefile.read_text(), re.MULTILINE))


def targets(file: str) -> frozenset[str]:
    """Return the targets that a file's text is about."""
    of_project = file.startswith(PROJECTS)
    return _targets_of(PROJECT / ("podline/commands/templates/project/Makefile.template" if of_project else "Makefile"))


@functools.cache
def recipe_values() -> frozenset[str]:
    """Return the dotted names of a recipe's values."""
    kinds = (ClassificationSettings, PoseSettings)
    paths = {path for kind in kinds for path, _ in registry.value_paths(Recipe, kind)}
    models = (each.code(each.settings) for each in map(datasets.find, datasets.names()))
    return frozenset(paths | {f"conversion.{name}" for model in models for name in model.model_fields})


@functools.cache
def machine_values() -> frozenset[str]:
    """Return the dotted names of a machine's settings."""
    return frozenset(settings.keys())


def of_values(piece: str) -> Iterator[str]:
    """Yield a dotted name of a recipe's value or a setting that does not exist, if its table does."""
    if piece.startswith("[setting] "):
        yield from (f"no setting {key}" for key in [piece.removeprefix("[setting] ")] if key not in machine_values())
    elif DOTTED.fullmatch(piece) and piece not in ELSEWHERE and not piece.endswith(FILES):
        known = recipe_values() | machine_values() | {name.strip("`") for name, _ in ledger.fields()}
        tables = {name.rpartition(".")[0] for name in known if "." in name}
        if piece.partition(".")[0] in tables and piece not in tables | known and not _is_value(piece):
            yield f"no value {piece} of a recipe, and no such setting"


def _of_path(path: str) -> str | None:
    """An error of a model names values from that model on."""
    known = recipe_values() | machine_values()
    return (
        None
        if _is_value(path) or any(f".{name}".endswith(f".{path}") for name in known)
        else f"no value {path} of a recipe"
    )


def _of_file(name: str) -> str | None:
    path, _, anchor = name.partition("#")
    if OPEN.search(path) or "*" in path:
        return None
    if not (PROJECT / path).exists():
        return f"no file {path}"
    return f"no part #{anchor} of {path}" if anchor and anchor not in anchors(PROJECT / path) else None


def prose(page: Path, *, by_hand: bool = False) -> str:
    """Return a page without code and comments; only what is written by hand, not what is made from the code."""
    text = page.read_text().partition("<!-- made from the code")[0] if by_hand else page.read_text()
    return re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return what links may have after the #, as GitHub and the site make it of headings."""
    headings = re.findall(r"^#+ (.*)", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _of_variable(name: str) -> str | None:
    known = {settings.variable_of(key) for key in machine_values()} | {*settings.NOT_SETTINGS, OF_COMPOSE}
    return None if name in known else f"no setting {name}"


def _of_setting(text: str) -> str | None:
    name = re.split(r"[\s`]", text)[-1]
    return None if name in machine_values() else f"no setting {name}"


def _of_module(name: str) -> str | None:
    """Groups of entry points, and names of events, are strings by themselves somewhere."""
    package, *parts = name.split(".")
    if parts[-1] in FILES or parts[0] in FILES or name in names_alone() | ELSEWHERE:
        return None
    place = PROJECT / package
    while parts and ((below := place / parts[0]).is_dir() or below.with_suffix(".py").is_file()):
        place = below
        parts.pop(0)
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return None if not parts or re.search(rf"\b{parts[0]}\b", source.read_text()) else f"no {name}"


@functools.cache
def names_alone() -> frozenset[str]:
    """Return the dotted names that are whole strings in the code."""
    sources = (module.read_text() for folder in CODE for module in (PROJECT / folder).rglob("*.py"))
    return frozenset(name for source in sources for name in re.findall(r"\"(podline(?:\.\w+)+)\"", source))


LOOKED_UP = {_of_file: FILE, _of_variable: VARIABLE, _of_setting: SETTING, _of_module: MODULE, _of_path: ASSIGNMENT}
