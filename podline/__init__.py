"""Podline: every night, images become a trained, evaluated and reported model."""

import os
import site
import sys

__version__ = "1.1.0"
# The entries of PYTHONPATH that are searched after installed packages, for this process and its children.
_LAST = "_PODLINE_SEARCHED_LAST"


def use_tensorflow() -> None:
    """Let Keras use TensorFlow, here and in child processes, whatever KERAS_BACKEND says; call it before Keras loads.

    Raises:
        SettingsError: this process has loaded Keras with another backend.
    """
    os.environ["KERAS_BACKEND"] = "tensorflow"
    keras = sys.modules.get("keras")
    if keras and (backend := keras.config.backend()) != "tensorflow":
        from podline.base.errors import SettingsError  # noqa: PLC0415

        raise SettingsError(
            f"got Keras with the backend {backend} in this process, expected tensorflow; call Podline before "
            "`import keras`, or set KERAS_BACKEND=tensorflow"
        )


def _search_installed_first() -> None:
    """Move entries of PYTHONPATH that have a name of an installed package to the end of the search path.

    A `click.py` or `requests/` there would replace what Podline needs. A user's own modules beside it are still found.
    """
    # Imported here, since most users set no PYTHONPATH and need not wait for these.
    import pkgutil  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    # As in sys.path, without "..".
    given = [os.path.normpath(Path(entry).absolute()) for entry in os.environ["PYTHONPATH"].split(os.pathsep) if entry]
    installed = {module.name for module in pkgutil.iter_modules([*site.getsitepackages(), site.getusersitepackages()])}
    # Where Podline itself is found, children must find it too.
    own = str(Path(__file__).parents[1])
    last = [
        entry for entry in given if entry != own and {one.name for one in pkgutil.iter_modules([entry])} & installed
    ]
    os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in given if entry not in last)
    os.environ[_LAST] = os.pathsep.join([*filter(None, [os.environ.get(_LAST)]), *last])
    sys.path[:] = [entry for entry in sys.path if entry not in last]


# In Podline's own programs, before they import anything else; a notebook's search path, for one, is its user's.
if sys.argv[0].rpartition("/")[2] in ("-m", "podline"):
    use_tensorflow()
    if os.environ.get("PYTHONPATH"):
        _search_installed_first()
# Also in the process of a flow, which Prefect starts.
sys.path += [entry for entry in os.environ.get(_LAST, "").split(os.pathsep) if entry and entry not in sys.path]
