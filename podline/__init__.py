"""Podline: every night, raw vision archives become a trained, evaluated, reported model."""

import os
import site
import sys

__version__ = "1.0.0"


def use_tensorflow() -> None:
    """Let Keras use TensorFlow, here and in child processes, whatever KERAS_BACKEND says; call it before Keras loads.

    Raises:
        SettingsError: this process has loaded Keras with another backend.
    """
    os.environ["KERAS_BACKEND"] = "tensorflow"
    keras = sys.modules.get("keras")
    if keras and (backend := keras.config.backend()) != "tensorflow":
        from podline.errors import SettingsError  # noqa: PLC0415

        raise SettingsError(
            f"got Keras with the backend {backend} in this process, expected tensorflow; call Podline before "
            "`import keras`, or set KERAS_BACKEND=tensorflow"
        )


def _search_installed_first() -> None:
    """Search installed packages before PYTHONPATH, here and in child processes, where both have a name.

    A `click.py` or `requests/` on PYTHONPATH would replace what Podline needs. A user's own modules are still found.
    """
    # Few set PYTHONPATH, so that others need not wait for these.
    import pkgutil  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    given = [str(Path(entry).absolute()) for entry in os.environ["PYTHONPATH"].split(os.pathsep) if entry]
    installed = [entry for entry in (*site.getsitepackages(), site.getusersitepackages()) if entry in sys.path]
    first = next((place for place, entry in enumerate(sys.path) if entry in given), None)
    theirs, ours = ({module.name for module in pkgutil.iter_modules(folders)} for folders in (given, installed))
    # If Podline itself is from PYTHONPATH, children must not find another one.
    if first is not None and theirs & ours and str(Path(__file__).parents[1]) not in given:
        sys.path[first:] = [*installed, *(entry for entry in sys.path[first:] if entry not in installed)]
        os.environ["PYTHONPATH"] = os.pathsep.join([*installed, *given])


# In Podline's own programs, before they import anything else; a notebook's search path, for one, is its user's.
if sys.argv[0].rpartition("/")[2] in ("-m", "podline"):
    use_tensorflow()
    if os.environ.get("PYTHONPATH"):
        _search_installed_first()
