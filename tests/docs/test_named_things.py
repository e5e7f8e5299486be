"""What docs, help texts, messages, templates, units and manifests name is there: commands, targets, files, settings."""

from __future__ import annotations

import click
import pytest
from named_things import PROJECT, Text, missing, of_markdown, of_python, of_tree, texts

from podline.cli import cli


def test_everything_that_a_text_names_is_there() -> None:
    assert [each for text in texts() for each in missing(text)] == []


def test_the_drawn_tree_is_the_tree() -> None:
    page = (PROJECT / "docs/explanation/architecture.md").read_text()
    assert list(of_tree(page)) == []
    assert list(of_tree(page.replace("  input/ ", "  inputs/"))) == ["no podline/inputs/"]


@pytest.mark.parametrize(
    ("page", "named"),
    [
        ("Then call `podline down`.", "no command 'down'"),
        ("It is like\n`podline runs\nshows`.", "no command 'shows' in `podline runs`"),
        ("```sh\n.venv/bin/podline train cifar10 --epoch 3   # three\n```", "no option --epoch of `podline … train`"),
        ("```sh\ncd x && A=1 podline convert cifar10 \\\n  --engine spark\n```", "--engine spark: "),
        ("`podline validate cifar10 mnist`", "2 arguments of `podline … validate`, which takes 1"),
        ("```\npodline run mnist --set model.depht=3\n```", "no value model.depht of a recipe"),
        ("```\npodline run mnist --set seed=one\n```", "seed = 'one': Input should be a valid integer"),
        ("With `--learning-rates` it", "no option --learning-rates of any command"),
        ("The value `schedule.warm` is", "no value schedule.warm of a recipe"),
        ("Set PODLINE_STORE_CASH.", "no setting PODLINE_STORE_CASH"),
        ("```toml\n[nights]\nnotifies = 1\n```", "no setting nights.notifies"),
        ("Call `make deploy`.", "no target `make deploy`"),
        ("It is in `podline/no_such.py`.", "no file podline/no_such.py"),
        ("See docs/how-to/tpu.md#no-such-part.", "no part #no-such-part of docs/how-to/tpu.md"),
        ("```python\nfrom podline.nothing import x\n```", "no podline.nothing"),
    ],
)
def test_what_is_not_there_is_found_on_a_page(page: str, named: str) -> None:
    [problem] = [each for text in of_markdown(f"# Page\n\n{page}\n", "docs/page.md") for each in missing(text)]
    assert problem.split(": ", 1)[0] in {f"docs/page.md:{line}" for line in (3, 4)}
    assert named in problem


def test_what_is_not_there_is_found_in_help_messages_and_projects() -> None:
    help_text = 'def down():\n    """End it.\n\n      podline down --root x\n    """\n'
    message = 'raise E(f"got {n}; call `podline store "\n f"purge {root}` with PODLINE_{x}")\n'
    found = [each for source in (help_text, message) for text in of_python(source, "a.py") for each in missing(text)]
    assert found == ["a.py:4: no command 'down' in `podline`", "a.py:1: no command 'purge' in `podline store`"]
    template = "podline/commands/templates/project/Makefile.template"
    makefile = Text(template, 1, "down:\n\t$(PODLINE) down --root x   # `make wheel`\n", is_code=True)
    assert list(missing(makefile)) == [
        f"{template}:2: no command 'down' in `podline`",
        f"{template}:2: no target `make wheel`",
    ]


def test_a_renamed_command_is_found_wherever_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    models = cli.get_command(click.Context(cli), "models")
    assert isinstance(models, click.Group)
    renamed = {("exports" if name == "export" else name): each for name, each in models.commands.items()}
    monkeypatch.setattr(models, "commands", renamed)
    places = {"docs/how-to/serve.md", "podline/commands/model_use.py", "pyproject.toml"}
    assert {each.split(":")[0] for text in texts() if text.file in places for each in missing(text)} == places
