"""What somebody else has set in the environment: another Keras backend, and modules on PYTHONPATH with known names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from podline import notebook
from podline.base.errors import SettingsError
from podline.settings.environment import search_first


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_installed_packages_win_over_pythonpath_and_own_modules_are_found(tmp_path: Path) -> None:
    shadows = tmp_path / "shadows ü"
    (shadows / "numpy").mkdir(parents=True)
    for name in ("rich", "markupsafe", "numpy/__init__"):
        (shadows / name).with_suffix(".py").write_text("raise SystemExit('the wrong one')")
    (shadows / "own_values.py").write_text(
        "from podline.recipes import registry\nRECIPE = registry.get('sample').changed(name='own')"
    )
    recipe = tmp_path / "own.py"
    recipe.write_text("from own_values import RECIPE")
    path = f"{tmp_path}{os.pathsep}{shadows}"
    command = python("-m", "podline.cli", "train", str(recipe), "--root", str(tmp_path / "root"), PYTHONPATH=path)
    assert "has no data set sample; make" in command.stderr, command.stderr
    child = python(
        "-P", "-m", "podline.stages.supervision.child", "train", "--progress-fd", "0", "--mark", "1", PYTHONPATH=path
    )
    assert "the parent ended" in child.stderr, child.stderr
    relative = os.path.relpath(shadows)
    assert python("-m", "podline.cli", "--version", PYTHONPATH=relative).stderr == ""
    # A notebook's process is its user's.
    assert python("-c", "import podline, markupsafe", PYTHONPATH=path).stderr.strip() == "the wrong one"
    # Prefect starts the process of a flow by itself, and that another program of Podline; numpy comes before Podline.
    look = "import numpy, podline, own_values, os; print(os.environ['KERAS_BACKEND'])"
    program = f"import subprocess, sys; sys.argv[0] = {str(tmp_path / 'podline')!r}; import podline\n"
    for _ in range(2):
        look = f"{program}subprocess.run([sys.executable, '-c', {look!r}])"
    done = python("-c", look, PYTHONPATH=path, KERAS_BACKEND="torch")
    assert done.stdout == "tensorflow\n", done.stderr


def test_a_folder_that_is_searched_first_does_not_add_the_working_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for before, after in (("", "/a"), ("/b", f"/a{os.pathsep}/b")):
        monkeypatch.setenv("PYTHONPATH", before)
        search_first([Path("/a")])
        assert os.environ["PYTHONPATH"] == after


def test_models_are_tensorflows_whatever_keras_backend_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = "from podline import notebook; import os; print(os.environ['KERAS_BACKEND'])\n"
    code += "from podline.models.build import build_model; import keras; print(keras.config.backend())"
    assert python("-c", code, KERAS_BACKEND="torch").stdout == "torch\ntensorflow\n"
    monkeypatch.setitem(sys.modules, "keras", SimpleNamespace(config=SimpleNamespace(backend=lambda: "jax")))
    for call in (notebook.benchmark_input, notebook.find_learning_rate, notebook.show):
        with pytest.raises(SettingsError, match="got Keras with the backend jax in this process, expected tensorflow"):
            call("sample", str(tmp_path))
    with pytest.raises(SettingsError, match="backend jax"):
        notebook.predict("sample", str(tmp_path), [])


def test_settings_that_prefect_refuses_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / ".prefect"
    home.mkdir()
    (home / "profiles.toml").write_text('active = "old"\n[profiles.old]\nPREFECT_LOGGING_LEVEL = "loud"\n')
    for command in ("deploy", "worker"):
        done = python("-m", "podline.cli", command, PREFECT_HOME=str(home), PREFECT_API_URL="http://127.0.0.1:1/api")
        assert done.returncode == 2, done.stderr
        assert f"a setting in {home}/profiles.toml or in a variable PREFECT_…: level = 'LOUD'" in done.stderr
