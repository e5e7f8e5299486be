"""Keeps the run of a bucket in a local folder during training, while a thread uploads its files.

Training does not wait for the store, and during an outage only the uploads are late. A run can resume from every
state of the uploads: the log and a checkpoint's arrays are uploaded before its description, and the completion record
last.

The folder stays until the run is done and uploaded, or another machine takes it over. A start resumes from the newer
checkpoint: of the folder or of the bucket, and of the folder if both are equal. This module does not need TensorFlow.
"""

from __future__ import annotations

import shutil
import threading
import time
import traceback
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from podline.base.errors import OtherWriterError, PodlineError, PreemptedError, StoreUnavailableError, one_line
from podline.base.progress import Reporter
from podline.base.stopwatch import measured
from podline.documents.metrics_log import EVENTS, METRICS
from podline.stages.specs import SPEC
from podline.store.contract import Store, explained
from podline.store.folder import FolderStore, mirror_of
from podline.store.one_writer import writer_of
from podline.training.checkpoints import CheckpointFolder

_EVERY_SECONDS = 2.0
_RETRY_SECONDS = 5.0
_NEWS_SECONDS = 30.0


def fetch_run(store: Store, folder: str, near: FolderStore) -> None:
    """Copy a run's logs and checkpoints, which a start reads, into another store.

    Raises:
        StoreError: a file cannot be read or written.
    """
    wanted = {f"{folder}/{name}" for name in (SPEC, METRICS, EVENTS)}
    checkpoints = f"{CheckpointFolder(store, folder, '').folder}/"
    # In this order, an interrupted call leaves no description of a checkpoint whose arrays are missing.
    there = (name for name in store.list(folder) if name in wanted or name.startswith(checkpoints))
    names = sorted(there, key=partial(_turn, folder))
    for name, path in zip(names, store.locals(names), strict=True):
        with near.workspace("fetching") as place:
            with explained("write", near.local(name)):
                shutil.copyfile(path, place / "copy")
            near.publish_file(place / "copy", name, replace=True)


class Mirror:
    """A run's folder on this machine; while a ``with`` block runs, a thread copies its files to the store.

    Attributes:
        near: the store on this machine; the run has the same name in it.
    """

    def __init__(self, store: Store, folder: str, patience: float, reporter: Reporter) -> None:
        """Prepare a mirror of a run's folder; the store may be unavailable for ``patience`` seconds."""
        self.near = mirror_of(store)
        self._far, self._folder, self._patience, self._reporter = store, folder, patience, reporter
        self._brought: dict[str, tuple[int, int]] = {}
        self._away_since: float | None = None
        self._failure: PodlineError | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep_bringing, name="bringing to the store", daemon=True)

    @property
    def lost(self) -> bool:
        """Return whether uploads ended: the store was unavailable for ``patience`` seconds, or an upload failed."""
        return self._failure is not None

    def __enter__(self) -> Self:
        """Fetch the run if the store's copy is newer, else upload the local one; start the thread.

        Raises:
            StoreUnavailableError: the store does not answer.
            OtherWriterError: another machine has taken over the run.
        """
        self.near.sweep()
        here, there = (self._newest(store) for store in (self.near, self._far))
        if here < 0 or here < there:
            shutil.rmtree(self.near.local(self._folder), ignore_errors=True)
            fetch_run(self._far, self._folder, self.near)
        else:
            self._reporter.log(
                f"the checkpoint of step {here} is on this machine, that of step {max(there, 0)} in {self._far.uri}"
            )
            self._bring()
        self._thread.start()
        return self

    @measured("store")
    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Upload the remaining files, and delete the local folder if the run is done.

        Raises:
            PodlineError: the store is still unavailable, or an upload failed; the run stays on this machine. An error
                of the body other than :class:`PreemptedError` is raised instead.
            OtherWriterError: another machine has taken over the run; this machine deletes its copy.
        """
        self._ending.set()
        while self._thread.is_alive():
            self._thread.join(_NEWS_SECONDS)
            if self._thread.is_alive():
                self._reporter.log(f"uploading the run to {self._far.uri}")
        if isinstance(self._failure, OtherWriterError):
            shutil.rmtree(self.near.local(self._folder), ignore_errors=True)
            raise self._failure from error
        if self._failure is not None:
            message = (
                f"{self._failure}; the run is kept in {self.near.local(self._folder)}; run the same command on this "
                "machine to resume it"
            )
            if error is None or isinstance(error, PreemptedError):
                raise type(self._failure)(message) from error
            self._reporter.warn(message)
        elif error is None:
            shutil.rmtree(self.near.local(self._folder), ignore_errors=True)

    def _newest(self, store: Store) -> int:
        return next(iter(CheckpointFolder(store, self._folder, "").steps()), -1)

    def _keep_bringing(self) -> None:
        try:
            while True:
                last = self._ending.is_set()
                done = self._tried()
                if last and done:
                    return
                # At the end no training runs, so this thread need not wait for new files.
                self._ending.wait(_EVERY_SECONDS) if done else time.sleep(_RETRY_SECONDS)
        except PodlineError as error:
            self._failure = error
        except Exception as error:
            traceback.print_exc()
            self._failure = PodlineError(f"cannot upload {self._folder}: {type(error).__name__}: {one_line(error)}")

    def _tried(self) -> bool:
        try:
            self._bring()
        except StoreUnavailableError as error:
            now = time.monotonic()
            if self._away_since is None:
                self._away_since = now
                self._reporter.warn(f"{error}; training goes on, for up to {self._patience:g} s without the store")
            if now - self._away_since >= self._patience:
                raise
            return False
        if self._away_since is not None:
            self._reporter.log(f"{self._far.uri} is back; all files are uploaded")
            self._away_since = None
        return True

    def _bring(self) -> None:
        """Upload the files that changed since the last call; delete from the store the checkpoints deleted here."""
        if writer := writer_of(self._far, self._folder):
            writer.unless_lost()
        changed = False
        for name in sorted(self.near.list(self._folder), key=partial(_turn, self._folder)):
            path = self.near.local(name)
            with explained("upload", path):
                try:
                    changed |= self._bring_file(name, path)
                except FileNotFoundError as error:
                    if error.filename != str(path):  # if equal, a checkpoint was replaced during the upload
                        raise
        if changed:
            folder = CheckpointFolder(self.near, self._folder, "").folder
            there = set(self.near.list(folder))
            for name in sorted(self._far.list(folder)):  # a description before its arrays
                if name not in there:
                    self._far.delete(name)

    def _bring_file(self, name: str, path: Path) -> bool:
        facts = path.stat()
        mark = (facts.st_size, facts.st_mtime_ns)
        if self._brought.get(name) == mark:
            return False
        with self.near.workspace("bringing") as folder:
            copy = folder / "object"
            shutil.copyfile(path, copy)  # the log may grow during the upload
            self._far.publish_file(copy, name, replace=True)
        self._brought[name] = mark
        return True


def _turn(folder: str, name: str) -> tuple[int, str]:
    """Return the sort key of copies: a file of a run's folder is copied before those that refer to it."""
    if name.startswith(f"{folder}/stages/"):
        return 2, name
    return int(name.startswith(f"{folder}/checkpoints/") and name.endswith(".json")), name
