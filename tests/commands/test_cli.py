"""The command line: its help, its exit codes, one line for an error, one document for --json."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import click
import numpy as np
import pytest
from coco_files import CocoFiles
from finished_run import finished_run
from parsing_here import parsing_here

from podline import cli
from podline.base.errors import SourceError, StageTimeoutError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.commands import display
from podline.commands.engine import _temporary_store
from podline.data.sources.sample import write_sample
from podline.kinds.pose.settings import PoseSettings
from podline.recipes import registry
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store

PROJECT = Path(__file__).parent.parent.parent


def test_every_command_has_a_page_with_an_example_and_the_first_lists_the_exit_codes(podline) -> None:
    assert all(f" {code}  " in podline("--help").out for code in (0, 2, 75, 143))
    for name, listed in ((name, each.help) for section in cli.SECTIONS.values() for name, each in section.items()):
        assert f"podline {name}" in podline(name, "--help").out
        group = cli.cli.get_command(click.Context(cli.cli), name)
        if isinstance(group, click.Group):
            assert listed == " · ".join(group.commands)
            for command in group.commands:
                page = podline(name, command, "--help").out
                assert f"\n    podline {name} {command}" in page
                assert not re.search(r"^    podline .* podline ", page, re.MULTILINE), "two examples on one line"


def test_a_page_that_help_or_an_error_names_can_be_opened(podline) -> None:
    help_page = podline("models", "promote", "--help").out
    folder = re.fullmatch(r"The folder docs/ is (/.*)\.", help_page.splitlines()[-1])
    assert folder is not None
    assert (Path(folder[1]) / "how-to/promote.md").is_file()
    error = re.search(r"see (/\S+/how-to/tpu\.md)$", podline("tpu", "status").err, re.MULTILINE)
    assert error is not None
    assert Path(error[1]).read_text().startswith("# ")
    assert "The folder" not in podline("init", "--help").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evalute"], "there is no command 'evalute'; did you mean 'evaluate'? (see `podline --help`)"),
        (["data", "chek"], "there is no command 'chek'; did you mean 'check'? (see `podline data --help`)"),
        (["train"], "no recipe is given; give one of cifar10"),
        (["models", "describe", "mnist", "--set", "depth"], "got 'depth', expected KEY=VALUE"),
        (["models", "describe", "mnist", "--set", f"batch_size={'[' * 9_999}"], "batch_size = '[[["),
        (["train", "mnist", "--learning-rate", "-1"], "'--learning-rate': got '-1', expected a number above 0"),
        (["benchmark", "write-shards"], "no benchmark 'write-shards'; did you mean 'write-shard'?"),
        (["convert", "mnist"], "got no --source; give --source with the folder or the file"),
        (["data", "list", "--settings", "nowhere.toml"], "nowhere.toml cannot be read: No such file"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(podline, arguments: list[str], message: str) -> None:
    answer = podline(*arguments)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith("podline: error: ")
    assert message in answer.err


def test_an_evaluation_is_of_a_run_or_of_a_recipe_s_newest_one(podline, tmp_path: Path) -> None:
    older, newer = (finished_run(tmp_path, seed=seed).run for seed in (0, 1))
    for name, run in {"cifar10": newer, older: older, newer: newer}.items():
        spec = json.loads(podline("evaluate", name, "--set", "task.views=2", "--root", tmp_path, "--show-spec").out)
        assert (spec["run"], spec["judging"]) == (run, {"views": 2})
    other = podline("evaluate", "cifar10", "--set", "model.width=0.5", "--root", tmp_path)
    assert other.code == 2
    assert other.err.endswith(f"to train with these settings: `podline train {newer} --set …`\n")
    assert "has no finished run of mnist" in podline("report", "mnist", "--root", tmp_path).err
    other = podline("report", newer, "--split", "train", "--root", tmp_path).err
    assert other.endswith(f"run `podline evaluate {newer} --split train` first\n")


def test_a_sheet_of_a_recipe_in_a_file_is_in_the_store(
    podline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, performed = tmp_path / "my_recipe.py", Mock(side_effect=SourceError("asked"))
    file.write_text('from podline.recipes import registry\nRECIPE = registry.get("cifar10").changed(name="mine")\n')
    finished_run(tmp_path / "root")
    monkeypatch.setattr("podline.commands.stage_command.performed", performed)
    assert podline("data", "preview", file, "--root", tmp_path / "root").code == 3
    assert performed.call_args.args[0].out == str(tmp_path / "root/sheets/mine.png")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("models predict sample-0123456789ab gone.png", "gone.png: no such file or folder; give pictures, a folder"),
        ("models predict sample-0123456789ab a.png --table a.txt", "got a.txt, expected a file name that ends in"),
        ("models predict sample-0123456789ab a.png", "`podline runs list` shows all runs"),
        ("models promote sample --root other", "sample is a recipe; give one of its runs, such as sample-0123456789ab"),
        ("models export sample gs://bucket/models", "gs://bucket/models is not on this machine; give a local path"),
        ("data check gone", "gone does not exist"),
        ("models list --root nope", "nope does not exist"),
        ("runs delete --root nope", "got neither runs nor --days, or both"),
        ("runs compare a --root nope", "got one run, a, expected two or more"),
        ("runs compare a b c --why --root nope", "got 3 runs, expected one or two with --why"),
        ("runs nights --metrics a.prom --out a.html --root nope", "got --metrics and --out"),
        ("data show mnist --deep --root nope", "got --deep without --verify"),
        ("data show mnist@1..2 --record 1.png --root nope", "got --record with two versions"),
        ("data correct images.a --record 1.png --root nope", "got neither --label nor --drop"),
        ("data forget images.a --prove a.png --dry-run --root nope", "got --prove with --key"),
    ],
)
def test_arguments_are_looked_at_before_tensorflow_and_before_a_store_is_made(
    podline, tmp_path, monkeypatch, words, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("podline.stages.supervision.running.run_stage", pytest.fail)
    Path("a.png").touch()
    Path("other/runs/sample-0123456789ab").mkdir(parents=True)
    answer = podline(*words.split())
    assert (answer.code in (2, 3, 5), answer.err.count("\n")) == (True, 1), answer.err
    assert message in answer.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "other"]


def test_a_check_of_an_engine_leaves_nothing(gcs_root: str, tmp_path: Path) -> None:
    store = open_store(gcs_root)
    with _temporary_store(store) as (root, source):
        assert Path(source).is_dir()
        made = open_store(root)
        made.publish_bytes("name", b"")
        assert made.scratch.is_dir()
    assert store.list() == []
    assert not made.scratch.exists()
    folder = open_store(tmp_path / "root")
    with _temporary_store(folder) as (root, _):
        open_store(root).publish_bytes("name", b"")
    assert not Path(root).exists()
    with contextlib.suppress(SourceError), _temporary_store(folder) as (root, _):
        open_store(root).own_folder("logs").joinpath("convert.log").touch()
        raise SourceError("see the log")
    assert folder.list() == []
    assert (Path(root) / ".podline/logs/convert.log").exists()


@pytest.mark.parametrize(("words", "completed"), [("runs show --root ROOT a-", "a-1"), ("train mni", "mnist")])
def test_the_shell_completes_runs_of_the_root_and_recipes_without_heavy_imports(tmp_path, words, completed):
    (tmp_path / "runs/a-1").mkdir(parents=True)
    typed = f"podline {words}".replace("ROOT", str(tmp_path))
    code = (
        "import atexit, sys; from podline.cli import main\n"
        "atexit.register(lambda: print({'tensorflow', 'prefect'} & sys.modules.keys())); main([])"
    )
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_PODLINE_COMPLETE": "bash_complete"}
    said = subprocess.check_output([sys.executable, "-c", code], env=os.environ | asked, text=True)
    assert said.splitlines() == [f"plain,{completed}", "set()"]


@pytest.mark.usefixtures("stages_here")
def test_a_source_that_is_empty_or_gone_is_exit_code_3_and_leaves_nothing(podline, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    answer = podline("convert", "cifar10", "--source", tmp_path / "empty", "--root", tmp_path / "root")
    assert (answer.code, "is empty" in answer.err.splitlines()[-1]) == (3, True)
    answer = podline("run", "images", "--source", tmp_path / "nowhere", "--root", tmp_path / "root")
    assert (answer.code, "nowhere does not exist" in answer.err) == (3, True)
    assert not [tmp_path / "root" / name for name in ("datasets", "logs") if (tmp_path / "root" / name).exists()]


def test_debug_shows_the_traceback_wherever_it_stands(podline, tmp_path: Path) -> None:
    for arguments in (["--debug", "train", "mnist"], ["train", "mnist", "--debug"]):
        answer = podline(*arguments, "--root", tmp_path)
        assert "Traceback" in answer.err
        assert answer.err.splitlines()[-1].startswith("podline: error: ")


def test_json_is_one_document_also_for_an_error(podline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(podline("runs", "list", "--root", tmp_path, "--json").out) == []
    answer = podline("data", "show", "mnist", "--root", tmp_path, "--json")
    error = json.loads(answer.out)["error"]
    assert (error["type"], error["exit_code"], answer.code) == ("StoreError", 5, 5)
    open_store(tmp_path).publish_json("runs/sample-0123456789ab/spec.json", {})
    answer = podline("store", "verify", "--root", tmp_path, "--json")
    assert (len(json.loads(answer.out)["problems"]), answer.code) == (1, 4)
    monkeypatch.setattr("podline.commands.runs.raise_damaged", Mock(side_effect=KeyboardInterrupt))
    answer = podline("runs", "list", "--root", tmp_path, "--json")
    assert (isinstance(json.loads(answer.out), list), answer.code) == (True, 130)


def test_exit_codes_are_those_of_the_errors_and_an_unforeseen_one_is_a_bug(
    podline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (SourceError("x"), StageTimeoutError("x"), KeyboardInterrupt(), ZeroDivisionError("division by zero")):
        monkeypatch.setattr("podline.commands.runs.names", Mock(side_effect=error))
        answer = podline("runs", "list", "--root", tmp_path)
        expected = {KeyboardInterrupt: 130, ZeroDivisionError: 1}.get(type(error)) or error.exit_code
        assert answer.code == expected
    assert answer.err == "podline: error: ZeroDivisionError: division by zero (this is a bug; --debug shows where)\n"
    answer = podline("runs", "list", "--root", "~nobody-has-this-name/root")
    assert (answer.code, "a path begins with ~ or ~USER whose home folder is unknown" in answer.err) == (2, True)
    monkeypatch.setattr("podline.commands.runs.names", Mock(side_effect=OSError(errno.ENOSPC, "full")))
    answer = podline("runs", "list", "--root", tmp_path)
    assert (answer.code, "cannot write a file or the output: no space left on the device" in answer.err) == (5, True)


def test_a_conversion_for_a_recipe_has_the_recipe_s_size(podline, tmp_path: Path) -> None:
    side = PoseSettings.of(registry.get("coco_pose")).side
    CocoFiles("val", 4, 101).write(tmp_path / "few")
    source = CocoFiles("train", 12).write(tmp_path / "few")
    for name, options, expected in (("coco_pose", (), side), ("coco_pose", ("--side", "64"), 64), ("coco", (), 368)):
        spec = json.loads(podline("convert", name, "--source", source, "--root", tmp_path, *options, "--show-spec").out)
        assert (spec["dataset"], spec.get("side", 368)) == ("coco", expected)


def test_a_spec_that_is_shown_can_be_given_back(podline, tmp_path: Path) -> None:
    shown = podline("convert", "sample", "--source", "drawn", "--root", tmp_path, "--workers", "3", "--show-spec")
    spec = tmp_path / "spec.json"
    spec.write_text(shown.out)
    again = podline("convert", "--spec", spec, "--show-spec")
    assert again.out == podline("convert", "--spec", spec, "--show-spec", "--root", tmp_path).out == shown.out
    assert json.loads(shown.out)["workers"] == 3
    other = podline("convert", "--spec", spec, "--show-spec", "--root", tmp_path / "other")
    assert (other.code, f"with a spec for {tmp_path}; leave --root out" in other.err) == (2, True)

    spec.write_text(shown.out.replace('"seed"', '"sed"'))
    answer = podline("convert", "mnist", "--spec", spec, "--side", "64", "--json")
    assert "got --spec with RECIPE, --side, which the spec contains" in answer.err
    answer = podline("convert", "--spec", spec)
    assert (answer.code, "is not a spec of the stage convert (sed" in answer.err) == (2, True)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("data show images --verify --record cat/1.jpg", "got --record and --verify, expected one"),
        ("data show images@2..3 --record cat/1.jpg", "got --record with two versions, expected one version"),
        ("data show images@2 --fingerprint 0123", "got @2 after the name and --fingerprint 0123"),
        ("data preview sample@2 --run sample-0123456789ab", "got --run and a version of the data"),
        ("runs delete sample-0123456789ab --keep 3", "got --keep or --recipe with names of runs, expected --days"),
        ("runs delete sample-0123456789ab --recipe sample", "got --keep or --recipe with names of runs"),
        ("runs nights --metrics nights.prom --out nights.html", "got --metrics and --out, expected one"),
    ],
)
def test_options_that_exclude_each_other_are_refused(podline, tmp_path: Path, command: str, words: str) -> None:
    podline("store", "mark", "--root", tmp_path)
    answer = podline(*command.split(), "--root", tmp_path)
    assert (answer.code, words in answer.err) == (2, True), answer.err


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a drawn sample and a root in which it is converted."""
    folder = tmp_path_factory.mktemp("converted")
    source = write_sample(folder / "drawn", train=50, test=20)
    with parsing_here():
        convert(ConvertSpec(root=str(folder / "root"), dataset="sample", source=str(source)), silent())
    return folder


def _shown(events: list[tuple[float, dict]]) -> list[str]:
    """The lines that events at some seconds become."""
    lines: list[str] = []
    now = [0.0]
    shown = display.Lines(lines.append, clock=lambda: now[0])
    for seconds, event in events:
        now[0] = seconds
        shown.listen({"stage": "train", **event})
    return lines


def _progress(done: int, total: int = 100) -> dict:
    return {"event": "progress", "done": done, "total": total, "unit": "steps", "metrics": {"loss": 0.51234}}


def test_progress_in_plain_lines_comes_every_tenth_but_not_too_often() -> None:
    events = [(0.0, {"event": "start"}), *((second / 2, _progress(second)) for second in range(101))]
    lines = _shown([*events, (51.0, {"event": "result", "result": {"seconds": 50.0, "reused": False}})])
    assert lines[0] == "train    10/100 steps  loss 0.5123  45 s left"
    assert len(lines) == 10
    assert lines[-1] == "train    ✓ 51 s"
    # What was done before does not make the rest look fast.
    lines = _shown([(0.0, {"event": "start"}), (1.0, _progress(500, 1000)), (101.0, _progress(600, 1000))])
    assert lines == ["train    600/1,000 steps  loss 0.5123  6 min 40 s left"]
    # A stage that was found says so once.
    result = {"event": "result", "result": {"seconds": 90.0, "reused": True}}
    lines = _shown([(0.0, {"event": "start"}), (0.1, {"event": "start"}), (12.0, result), (12.1, result)])
    assert lines == ["train    ✓ re-used: found and verified in 12 s, made in 1 min 30 s"]


def test_bars_on_a_terminal_end_as_lines(converted: Path) -> None:
    """On a real pseudo-terminal: bars move on standard error, and a line is left for each stage."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "podline.cli", "validate", "sample", "--root", str(converted / "root"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, cwd=PROJECT)
    os.close(terminal)
    seen = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while block := os.read(controller, 4096):
            seen += block
    os.close(controller)
    out, _ = process.communicate()
    assert json.loads(out)["records"] == 70
    assert "✓ " in seen.decode()
    assert "starting" in seen.decode()


def test_a_signal_ends_the_command_and_all_that_it_started(tmp_path: Path) -> None:
    source, root = write_sample(tmp_path / "drawn", train=3000, test=20), tmp_path / "root"
    command = [sys.executable, "-m", "podline.cli", "convert", "sample", "--source", str(source), "--root", str(root)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=PROJECT)
    assert process.stderr is not None
    assert "reading" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("podline: error: ")
    assert "the same command resumes from the last checkpoint or finished stage" in err.splitlines()[-1]
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            assert str(root).encode() not in entry.read_bytes(), f"{entry.parent} still runs"
    assert not list(root.glob("datasets/*/*/manifest.json"))


@pytest.mark.usefixtures("stages_here")
def test_a_search_for_a_rate_says_why_and_is_found_the_next_time(podline, converted: Path) -> None:
    options = ["--root", converted / "root", "--batch-size", 10, "--model", "linear", "--steps", 60, "--high", 1]
    answer = podline("tune", "lr", "sample", *options)
    assert answer.code == 0
    first, *reasons, chart = answer.out.splitlines()
    assert first.startswith("suggested learning rate: ")
    assert all(reason.startswith("- ") for reason in reasons)
    assert Path(chart).is_file()
    again = json.loads(podline("tune", "lr", "sample", *options, "--json").out)
    assert again["reused"]
    assert f"suggested learning rate: {again['learning_rate']:g} " in first


def test_a_description_counts_parameters_and_predicts_the_cost_of_a_training(podline) -> None:
    described = json.loads(podline("models", "describe", "cifar100", "--json").out)
    assert described["parameters"] == int(np.sum([layer["parameters"] for layer in described["layers"]]))
    # Half of the training sees images of a quarter of the pixels.
    phases = 'phases=[{"from_epoch": 30, "changes": {"augmentation.image_size": 16}}]'
    *_, last = podline("models", "describe", "cifar10", "--set", phases).out.splitlines()
    assert last.startswith("training ")
    assert last.endswith("0.243 PFLOP for 60 epochs of 50,000 images")
    assert "2.25 PFLOP for a million examples" in podline("models", "describe", "coco_pose").out
