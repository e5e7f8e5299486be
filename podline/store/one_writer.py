"""Let one process at a time write the folder of a run or data set: the holder of the lease ``writer.lease`` in it.

The holder replaces the lease every few seconds, each time in place of the version that it wrote last. Each lease states
a time limit. A waiting process takes a lease whose version did not change for this time by its own monotonic clock.
So no two clocks are compared, and a suspended or disconnected machine loses the lease. On one machine a lock
(:mod:`podline.store.locks`) shows at once that the holder has ended.

While a process holds a lease, all its writes below the folder go through :class:`Writer`. Before each write it renews
the lease, and it replaces files by version. So a machine that is suspended between the two can neither replace nor
delete files of the next holder. After each write it checks the lease again; if it was lost, it deletes the file just
written. Earlier files stay, since the next holder may use them. A completion record is first put into the lease: this
one conditional write decides whose result counts, and the next holder publishes a record that it finds in the lease.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
import uuid
from collections.abc import Callable, Generator
from pathlib import Path

from pydantic import ValidationError

from podline.base.errors import (
    ArtifactError,
    OtherWriterError,
    PermanentError,
    PodlineError,
    StoreError,
    StoreUnavailableError,
    TakenError,
)
from podline.base.frozen import Frozen
from podline.base.progress import beside
from podline.settings.machine import load
from podline.store import fences, locks
from podline.store.contract import Store, entered, explained
from podline.store.retries import retried

LEASE = "writer.lease"
_POLL_SECONDS = 1.0
# A lease is renewed this many times before others may take it.
_RENEWALS = 6
# A service may refuse to replace an object more than once a second; until then the lease is only read.
_LEAST_SECONDS = 1.0
_ATTEMPTS = 5
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Record(Frozen):
    """A completion record stored in a lease; it counts even before it is published."""

    name: str
    content: str


class LeaseDocument(Frozen):
    """The JSON document of a lease.

    Attributes:
        owner: a random name of the process that holds the lease.
        beat: a random text that changes with each renewal.
        seconds: time without a change after which another process may take the lease.
        holder: description of the holder, shown by waiting processes.
        record: the completion record that the holder is about to publish.
    """

    owner: str
    beat: str
    seconds: float
    holder: str
    record: Record | None = None


@contextlib.contextmanager
def writing(
    store: Store, folder: str, holder: str, waits: Callable[[str, float], None]
) -> Generator[Writer, None, None]:
    """Hold the lease of a folder while the body runs; first wait until no other process holds it.

    Args:
        store: the store.
        folder: the folder of a run, a data set or another result.
        holder: description of this process's work, shown by waiting processes.
        waits: called repeatedly while another process holds the lease, with its description and the seconds so far.

    Raises:
        StoreError: the store cannot be written.
        OtherWriterError: the body raised a :class:`PermanentError`, and another process has the lease meanwhile.
    """
    mark, begun = store.own_folder("locks") / f"{folder.replace('/', '~')}.owner", time.monotonic()
    with contextlib.ExitStack() as stack:
        turn = entered(store.uri, lambda: locks.turn(mark.with_suffix(".lock"), holder, waits))
        waited = stack.enter_context(turn)
        writer = Writer(store, folder, holder)
        writer.take(mark, lambda other: waits(other, time.monotonic() - begun))
        writer.waited |= waited
        stack.callback(writer.give_back)
        stack.enter_context(fences.put(store.uri, folder, writer))
        stack.enter_context(beside(writer.keep, writer.seconds / _RENEWALS, "lease"))
        try:
            yield writer
        except PermanentError:
            with contextlib.suppress(PermanentError):
                writer.require()  # another writer's results may be the cause of the error
            raise


class Writer:
    """The only process that may write below a folder, until it loses the folder's lease.

    Attributes:
        owner: the random name in the lease.
        seconds: time without a renewal after which another process may take the lease.
        waited: whether another process held the lease before, or left one behind.
        lost: whether another process has taken the lease.
    """

    def __init__(self, store: Store, folder: str, holder: str) -> None:
        """Prepare a writer; :func:`writing` takes the lease."""
        self.seconds = load().store.lease
        self.waited = self.lost = False
        self._store, self._folder, self._holder = store, folder, holder
        self.owner = uuid.uuid4().hex
        self._name = f"{folder}/{LEASE}"
        self._lock = threading.RLock()
        self._version, self._renewed = "", -math.inf
        self._record: Record | None = None
        # The last versions of files that this process wrote or looked up, which it may replace.
        self._versions: dict[str, str] = {}

    def take(self, mark: Path, waits: Callable[[str], None]) -> None:
        """Wait until the lease is free or expired, and take it.

        Args:
            mark: a file that names the owner of the last lease taken on this machine. This owner has ended, because
                this process holds the lock beside the file.
            waits: called with the holder's description while another process holds the lease.
        """
        self._mark, gone, seen, since = mark, _marked(mark), "", 0.0
        self._write_mark()
        while True:
            version, lease = self._found()
            now, silence = time.monotonic(), lease.seconds if lease else self.seconds
            if version != seen:
                seen, since = version, now
            if version and not (lease and lease.owner == gone) and now - since < silence:
                waits(lease.holder if lease else "another process")
                time.sleep(min(_POLL_SECONDS, silence / _RENEWALS))
                continue
            with contextlib.suppress(TakenError):
                self._version = self._put(version)
                break
        self.waited = bool(version)
        if lease and lease.record:
            self._publish_record(lease.record)

    @retried
    def _write_mark(self) -> None:
        with explained("write to the store", self._store.uri):
            self._mark.write_text(f"{_machine()} {self.owner}")

    def keep(self, last: bool) -> float | None:
        """Renew the lease unless it was renewed recently; return the seconds until the next call, or None if lost."""
        pause = self.seconds / _RENEWALS
        # If the store does not respond, keep the lease: the store may return before another process takes it.
        with self._lock, contextlib.suppress(PodlineError):
            if not (last or self.lost) and time.monotonic() - self._renewed > pause / 2:
                self._renew()
        return None if self.lost else pause

    def require(self) -> None:
        """Renew the lease; if it was renewed within the last second, only check that this process still holds it.

        Raises:
            OtherWriterError: another process holds the lease.
        """
        with self._lock:
            self.unless_lost()
            if time.monotonic() - self._renewed >= _LEAST_SECONDS:
                self._renew()
                return
            version = self._version
        found = self._store.find(self._name)
        if found is None or found.version != version:
            with self._lock:
                self._renew()  # by another thread meanwhile, or by another process

    def publish(self, source: Path, name: str, *, replace: bool, flush: bool) -> None:
        """Publish a file below the folder; see :meth:`podline.store.contract.Store.publish_file`.

        Raises:
            OtherWriterError: another process holds the lease.
        """
        is_record = name.startswith(f"{self._folder}/stages/")
        record = Record(name=name, content=source.read_text()) if is_record else None
        for _ in range(_ATTEMPTS):
            # Looked up before the lease is renewed: files of the next holder have other versions.
            version = self._version_of(name) if replace else ""
            self._decide(record) if record else self.require()
            try:
                self._versions[name] = self._store.swap(source, name, version, flush=flush)
            except TakenError:
                if not replace:
                    raise
                self._versions.pop(name, None)
                continue
            if record:
                self._record = None
            else:
                self._confirm(name)
            return
        raise StoreUnavailableError(
            f"cannot write {self._store.where(name)}: other processes replaced it {_ATTEMPTS} times meanwhile; try "
            "again later"
        )

    def delete(self, name: str, version: str) -> None:
        """Delete a file below the folder.

        Raises:
            OtherWriterError: another process holds the lease.
        """
        version = version or self._version_of(name)
        self._versions.pop(name, None)
        if version:
            self.require()
            self._store.swap(None, name, version)

    def give_back(self) -> None:
        """Delete the lease, unless another process has taken it."""
        with self._lock, contextlib.suppress(PodlineError, OSError):
            if not self.lost:
                self._store.swap(None, self._name, self._version)
            self._mark.unlink(missing_ok=True)

    def _version_of(self, name: str) -> str:
        if name not in self._versions:
            found = self._store.find(name)
            self._versions[name] = found.version if found else ""
        return self._versions[name]

    def _decide(self, record: Record) -> None:
        """Put a completion record into the lease, so that it counts even if this process is suspended now."""
        with self._lock:
            self.unless_lost()
            self._record = record
            self._renew()

    def _confirm(self, name: str) -> None:
        """Delete the file just written if the lease was lost meanwhile, since the next holder may not expect it."""
        try:
            self.require()
        except OtherWriterError:
            with contextlib.suppress(PodlineError):
                self._store.swap(None, name, self._versions[name])
            raise

    def _renew(self) -> None:
        try:
            self._version = self._put(self._version)
        except TakenError:
            self._lose()

    def _lose(self) -> None:
        self.lost = True
        self.unless_lost()

    def unless_lost(self) -> None:
        """Raise an error if the lease is known to be lost; sends no request to the store.

        Raises:
            OtherWriterError: another process holds the lease.
        """
        if self.lost:
            raise OtherWriterError(
                f"{self._store.where(self._folder)} has another writer, because this process was suspended, or cut off "
                f"from the store, for more than {self.seconds:g} s; this process writes no "
                "more. Run the same command again: the command waits for the other writer and uses its result"
            )

    def _put(self, version: str) -> str:
        beat, began = uuid.uuid4().hex, time.monotonic()
        lease = LeaseDocument(
            owner=self.owner, beat=beat, seconds=self.seconds, holder=self._holder, record=self._record
        )
        found = self._store.swap_bytes(self._name, lease.model_dump_json().encode(), version, flush=False)
        self._renewed = began
        return found

    def _found(self) -> tuple[str, LeaseDocument | None]:
        """Return version and content of the stored lease; ("", None) if there is none, None as an invalid content."""
        while True:
            found = self._store.find(self._name)
            if found is None:
                return "", None
            try:
                content = self._store.read_bytes(self._name, found.version)
                return found.version, LeaseDocument.model_validate_json(content)
            except ValidationError:
                return found.version, None
            except (ArtifactError, StoreError):
                if self._store.find(self._name) == found:  # not replaced or deleted meanwhile
                    raise

    def _publish_record(self, record: Record) -> None:
        with self._store.workspace("record") as folder, explained("write to the store", self._store.uri):
            file = folder / "record"
            file.write_text(record.content)
            self.publish(file, record.name, replace=True, flush=True)


class _Helper(Writer):
    """Writes below a folder while another process, the owner, holds the lease."""

    def __init__(self, store: Store, folder: str, owner: str) -> None:
        super().__init__(store, folder, "")
        self.owner = owner

    def _renew(self) -> None:
        """Check that the owner still holds the lease."""
        began, (version, lease) = time.monotonic(), self._found()
        if lease is None or lease.owner != self.owner:
            self._lose()
        self._version, self._renewed = version, began


_joining = threading.Lock()


def help_writer(store: Store, folder: str, owner: str) -> None:
    """Write below a folder only while ``owner`` holds its lease, from now on; for worker processes of the owner."""
    with _joining:
        writer = writer_of(store, folder)
        if writer is None or (isinstance(writer, _Helper) and writer.owner != owner):
            fences.stand(store.uri, folder, _Helper(store, folder, owner))


def writer_of(store: Store, folder: str) -> Writer | None:
    """Return this process's writer for a folder; None outside of :func:`writing` and before :func:`help_writer`."""
    found = fences.over(store.uri, f"{folder}/")
    return found if isinstance(found, Writer) else None


def _machine() -> str:
    """Return an id of this machine that changes at each boot; containers on it have the same id."""
    return _BOOT.read_text().strip() if _BOOT.exists() else str(uuid.getnode())


def _marked(mark: Path) -> str:
    """Return the owner in the mark file; empty if it was written on another machine or before a reboot."""
    with contextlib.suppress(OSError):
        machine, _, owner = mark.read_text().partition(" ")
        return owner if machine == _machine() else ""
    return ""
