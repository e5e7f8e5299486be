"""Settings: where each value comes from, and what is refused."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from podline.base.errors import SettingsError
from podline.settings import machine as settings

PROJECT = Path(__file__).parents[2]


def test_the_environment_overrides_the_file_and_the_file_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "podline.toml"
    file.write_text('root = "/data"\nworkers = 3\nstage_timeout = 60\n')
    loaded = settings.load(file, {"PODLINE_WORKERS": "5", "PATH": "/bin", "PODLINE_REAL_DATA": "/elsewhere"})
    assert (loaded.root, loaded.workers, loaded.silence) == ("/data", 5, 900.0)
    assert loaded.stage_timeout == 60.0
    assert settings.load(environment={"PODLINE_SETTINGS": str(file)}).workers == 3
    with pytest.raises(SettingsError, match=r"none\.toml cannot be read: No such file"):
        settings.load(tmp_path / "none.toml", {})


TPU = {"PODLINE_TPU_NODE": "night", "PODLINE_TPU_API_PROJECT": "p", "PODLINE_TPU_API_ZONE": "z"}


@pytest.mark.parametrize(
    ("text", "variables", "message"),
    [
        ("worker = 3", {}, r"podline\.toml: there is no setting 'worker'; did you mean 'workers'\?"),
        ("workers = 0", {}, r"podline\.toml: workers = 0: Input should be greater than or equal to 1"),
        (
            "[stage]\ntimeout = 3",
            {},
            r"podline\.toml: there is no setting 'stage.timeout'; did you mean 'stage_timeout'",
        ),
        ("workers = ", {}, r"podline\.toml is not TOML"),
        (f"workers = {'[' * 9_999}", {}, r"podline\.toml is not TOML"),
        ("engine = 'dask:host'", {}, "there is no engine 'dask:host'; use local, dask:HOST:PORT"),
        (
            "",
            {"PODLINE_ENGINE": "job-server:[::1]:70000"},
            "no engine 'job-server:.*70000'; use .*job-server:HOST:PORT",
        ),
        ("grace = inf", {}, r"podline\.toml: grace = inf: Input should be less than or equal to 31536000"),
        ("recipes = 5", {}, r"podline\.toml: recipes = 5: Input should be a valid tuple"),
        ("recipes = [1]", {}, r"podline\.toml: recipes\.0 = 1: Input should be a valid string"),
        ("", {"PODLINE_RECIPES": "a.py"}, r"PODLINE_RECIPES: recipes = 'a\.py': a\.py is a relative path"),
        ("tpu = 5", {"PODLINE_TPU_IDLE_STOP": "5"}, r"podline\.toml: tpu = 5: expected a table, \[tpu\]"),
        ("[tpu]\nnode = 'n'\n[tpu.api]", {}, r"podline\.toml: tpu\.api\.project.* must be given as well"),
        ("", {"PODLINE_WORKER": "3"}, "no setting 'PODLINE_WORKER'; did you mean 'PODLINE_WORKERS'"),
        ("", {"PODLINE_SILENCE": "soon"}, "PODLINE_SILENCE: silence = 'soon': Input should be a valid number"),
        ("tracking = 'mlflow:'", {}, "tracking = 'mlflow:': .*; expected an MLflow server that .*, `mlflow:URI`"),
        ("launch = 'ray'", {}, "launch = 'ray': .*; expected `slurm` or `ray:http://HEAD:8265`"),
        ("", {"PODLINE_TPU_NODE": "night"}, r"_TPU_NODE: tpu\.api\.project, tpu\.api\.zone must be given as well"),
        ("", {**TPU, "PODLINE_TPU_API_INSECURE": "1"}, r"PODLINE_TPU_API_.*: tpu\.api: .*insecure=true with endpoint="),
    ],
)
def test_a_file_or_variable_that_cannot_be_is_one_clear_line(
    tmp_path: Path, text: str, variables: dict[str, str], message: str
) -> None:
    file = tmp_path / "podline.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=message) as caught:
        settings.load(file, variables)
    assert "\n" not in str(caught.value)


def test_processes_in_other_folders_find_the_root_and_the_file_where_they_were(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in ("PODLINE_ROOT", "PODLINE_SETTINGS"):
        monkeypatch.setenv(variable, "")  # so that what is set below is gone in the end
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    settings.keep_places()
    assert settings.load().root == str(tmp_path / "podline-root")
    monkeypatch.delenv("PODLINE_ROOT")
    (tmp_path / "podline.toml").write_text('root = "gs://bucket/nights"')
    monkeypatch.setenv("PODLINE_SETTINGS", "podline.toml")
    settings.keep_places()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert settings.load().root == "gs://bucket/nights"


def test_variables_carry_settings_to_another_machine() -> None:
    given = {
        "PODLINE_HOSTS": "2..4",
        "PODLINE_GRACE": "1.5",
        "PODLINE_REQUIRE_ACCELERATOR": "true",
        "PODLINE_RECIPES": "/a.py,/b.py",
        "PODLINE_STORE_PARALLEL": "3",
        "PODLINE_TPU_NODE": "night",
        "PODLINE_TPU_API_PROJECT": "p",
        "PODLINE_TPU_API_ZONE": "z",
    }
    machine = settings.load(environment=given)
    assert settings.variables(machine).keys() == given.keys()
    assert settings.load(environment=settings.variables(machine)) == machine


def _reads_the_environment(node: ast.AST) -> bool:
    names = ("environ", "getenv", "putenv", "environb")
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(alias.name in names for alias in node.names)
    return isinstance(node, ast.Attribute) and node.attr in names


def test_no_other_module_touches_the_environment() -> None:
    folders = ("podline", "beam_jobs", "tasks", "flows", "deployments")
    modules = [path for top in folders for path in (PROJECT / top).rglob("*.py")]
    readers = {
        str(path.relative_to(PROJECT))
        for path in modules
        if any(_reads_the_environment(node) for node in ast.walk(ast.parse(path.read_text())))
    }
    # podline/__init__.py owns KERAS_BACKEND and PYTHONPATH, before anything else is imported.
    assert readers == {"podline/__init__.py", "podline/settings/environment.py", "podline/settings/machine.py"}


def test_the_file_and_the_environment_say_which_tpu(tmp_path: Path) -> None:
    file = tmp_path / "podline.toml"
    file.write_text('[tpu]\nnode = "day"\n[tpu.api]\nproject = "p"\nzone = "z"\n[tpu.limits.restart]\nattempts = 1\n')
    tpu = settings.load(file, {"PODLINE_TPU_NODE": "night", "PODLINE_TPU_LIMITS_POLL": "7"}).tpu
    assert tpu is not None
    assert (tpu.node, tpu.api.parent, tpu.limits.poll) == ("night", "projects/p/locations/z", 7.0)
    assert (tpu.limits.restart.attempts, tpu.limits.restart.pause) == (1, 10.0), "the rest of a table is its default"
    assert settings.load(environment={}).tpu is None
