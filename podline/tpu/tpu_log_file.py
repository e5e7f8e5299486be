"""The TPU log as a file in the run's folder, for the next attempt and the report."""

from __future__ import annotations

from collections.abc import Callable

from podline.errors import ArtifactError
from podline.store.contract import Store
from podline.tpu.tpu_log import Event, TpuLog, TpuLogEntry

FILE = "tpu.json"


def read_tpu_log(store: Store, folder: str) -> tuple[TpuLogEntry, ...]:
    """What a run's folder tells of its TPU; nothing for a run that needed none.

    Raises:
        ArtifactError: the file is damaged.
    """
    name = f"{folder}/{FILE}"
    if not store.exists(name):
        return ()
    try:
        return tuple(TpuLogEntry.model_validate(entry) for entry in store.read_json(name)["entries"])
    except (ValueError, TypeError, KeyError) as error:
        raise ArtifactError(f"{store.where(name)} is no log of a TPU ({error}); delete it") from error


class KeptTpuLog(TpuLog):
    """A TPU log that is written down whenever something happens, and read again before.

    So the flow and the run on the node, of which one is at work and the other waits, tell one tpu_log.

    Args:
        store: the store.
        folder: the run's.
        log: is told each new entry, in one line.
    """

    def __init__(self, store: Store, folder: str, log: Callable[[str], None]) -> None:
        super().__init__(read_tpu_log(store, folder), log)
        self._store, self._folder, self._name = store, folder, f"{folder}/{FILE}"

    def tell(self, at: float, event: Event, what: str, took: float = 0.0, *, worked: bool = True) -> None:
        """Adds an entry, logs it, and writes it down."""
        self._read()
        super().tell(at, event, what, took, worked=worked)
        self._write()

    def waited(self, at: float, what: str, seconds: float) -> None:
        """Waited: a new entry, or a longer last one; written down either way."""
        self._read()
        super().waited(at, what, seconds)
        self._write()

    def _read(self) -> None:
        self._entries = list(read_tpu_log(self._store, self._folder))

    def _write(self) -> None:
        document = {"entries": [entry.model_dump(mode="json") for entry in self.entries]}
        self._store.publish_json(self._name, document, replace=True)
