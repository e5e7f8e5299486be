"""Trains a bucket's run in a local folder; a thread uploads what it writes.

So training never waits for the store, and an outage costs nothing but that the store is behind. What is brought is
always something that a run can go on from: a checkpoint's arrays before its description, the log before both, the word
that all is done last of all.

The folder stays until the run is done and all of it is in the store. A start goes on from the side whose newest
checkpoint is the later one, and from this machine's if they are the same. Nothing here needs TensorFlow.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from podline.documents.metrics_log import EVENTS, METRICS
from podline.errors import PodlineError, PreemptedError, StoreUnavailableError
from podline.progress import Reporter
from podline.stages.specs import SPEC
from podline.stopwatch import measured
from podline.store.contract import Store, explained
from podline.store.folder import FolderStore
from podline.training.checkpoints import CheckpointFolder

_EVERY_SECONDS = 2.0
_RETRY_SECONDS = 5.0
_NEWS_SECONDS = 30.0


def fetch_run(store: Store, folder: str, near: FolderStore) -> None:
    """Copy what the start of a run reads, its logs and checkpoints, into another store.

    Raises:
        StoreError: something cannot be read or written.
    """
    wanted = {f"{folder}/{name}" for name in (SPEC, METRICS, EVENTS)}
    checkpoints = f"{CheckpointFolder(store, folder, '').folder}/"
    names = [name for name in store.list(folder) if name in wanted or name.startswith(checkpoints)]
    for name, path in zip(names, store.locals(names), strict=True):
        target = near.local(name)
        with explained("write", target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


class Mirror:
    """A run's folder on this machine, which a thread copies to the store.

    Attributes:
        near: the store on this machine, with the run under its own name.
    """

    def __init__(self, store: Store, folder: str, patience: float, reporter: Reporter) -> None:
        """Prepare a mirror; call :meth:`begin` first.

        Args:
            store: where the run belongs.
            folder: the run's name in it.
            patience: seconds for which the store may be away.
            reporter: is told when it goes and comes back.
        """
        self.near = FolderStore(store.scratch / "mirror")
        self._far, self._folder, self._patience, self._reporter = store, folder, patience, reporter
        self._brought: dict[str, tuple[int, int]] = {}
        self._away_since: float | None = None
        self._failure: PodlineError | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep_bringing, name="bringing to the store", daemon=True)

    @property
    def lost(self) -> bool:
        """Whether the store has been away for longer than patience lasts, or refuses what is brought."""
        return self._failure is not None

    def begin(self) -> None:
        """Fetch the run from the side that is further, and start the thread.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        self.near.sweep()
        here, there = (self._newest(store) for store in (self.near, self._far))
        if here < 0 or here < there:
            shutil.rmtree(self.near.local(self._folder), ignore_errors=True)
            fetch_run(self._far, self._folder, self.near)
        else:
            self._reporter.log(f"step {here} is on this machine, and step {max(there, 0)} in {self._far.uri}")
            self._bring()
        self._thread.start()

    @measured("store")
    def end(self, error: BaseException | None) -> None:
        """Brings what is left, and removes the folder if the run is done.

        Raises:
            StoreUnavailableError: the store is still away; what there is stays on this machine.
        """
        self._ending.set()
        while self._thread.is_alive():
            self._thread.join(_NEWS_SECONDS)
            if self._thread.is_alive():
                self._reporter.log(f"bringing the run to {self._far.uri}")
        if self._failure is not None and (error is None or isinstance(error, PreemptedError)):
            raise type(self._failure)(
                f"{self._failure}; the run is kept in {self.near.local(self._folder)}, and the same command on this "
                "machine goes on from there"
            ) from error
        if error is None:
            shutil.rmtree(self.near.local(self._folder), ignore_errors=True)

    def _newest(self, store: Store) -> int:
        return next(iter(CheckpointFolder(store, self._folder, "").steps()), -1)

    def _keep_bringing(self) -> None:
        while True:
            last = self._ending.is_set()
            done = self._tried()
            if self.lost or (last and done):
                return
            # At the end there is nothing to wait for but the store.
            self._ending.wait(_EVERY_SECONDS) if done else time.sleep(_RETRY_SECONDS)

    def _tried(self) -> bool:
        try:
            self._bring()
        except StoreUnavailableError as error:
            now = time.monotonic()
            if self._away_since is None:
                self._away_since = now
                self._reporter.warn(f"{error}; training goes on, for up to {self._patience:g} s without the store")
            if now - self._away_since >= self._patience:
                self._failure = error
            return False
        except PodlineError as error:
            self._failure = error
            return False
        if self._away_since is not None:
            self._reporter.log(f"{self._far.uri} is back, and has all that was written meanwhile")
            self._away_since = None
        return True

    def _bring(self) -> None:
        """Brings what has changed since the last time, and removes the checkpoints that are gone here."""
        changed = False
        for name in sorted(self.near.list(self._folder), key=_turn):
            with contextlib.suppress(FileNotFoundError):  # a checkpoint that was replaced meanwhile
                changed |= self._bring_file(name, self.near.local(name))
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
            shutil.copyfile(path, copy)  # the log may grow while it is sent
            self._far.publish_file(copy, name, replace=True)
        self._brought[name] = mark
        return True


def _turn(name: str) -> tuple[int, str]:
    """Return the sort key of uploads: a file is uploaded before those that refer to it."""
    if "/stages/" in name:
        return 2, name
    return int("/checkpoints/" in name and name.endswith(".json")), name


@contextlib.contextmanager
def mirrored(store: Store, folder: str, patience: float, reporter: Reporter) -> Iterator[Mirror]:
    """Mirror a run while the body runs; see :class:`Mirror`."""
    mirror = Mirror(store, folder, patience, reporter)
    mirror.begin()
    try:
        yield mirror
    except BaseException as error:
        mirror.end(error)
        raise
    mirror.end(None)
