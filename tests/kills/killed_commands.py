"""Podline's commands as a user gives them, killed at moments that a seed draws, and given again until they end well."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from compared_files import comparable, differences, ended_runs

from podline.base.progress import silent
from podline.ledger.inventory.verification import verify
from podline.stages.supervision.processes import marked, parent
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.locks import locked
from podline.store.opening import open_store

_MARK = "KILLED_COMMAND"
# Of a command that nobody kills, and of what a killed one leaves running: Prefect's server, a stage's process.
_PATIENCE, _ORPHANS = 300.0, 60.0
# Most kills of one store; then it has to come to its end.
_KILLS_IN_A_ROW = 3
# A child that was killed makes its parent end with this, or be tried again.
_TRY_AGAIN = 75
_POLL = 0.05


@dataclass(frozen=True)
class Case:
    """A command that is to be killed.

    Attributes:
        command: what follows ``podline``; ``{root}`` stands for the root.
        spec: what it is given as ``--spec -``, without the root.
        before: cases whose commands are to be done before it, undisturbed; they work in a folder.
        told: how many entries the ledger has of runs that ended well: none, one, or one for each start that did.
        after_kill: returns what is wrong with a store after each kill.
    """

    name: str
    command: tuple[str, ...]
    spec: dict[str, Any] | None = None
    before: tuple[Case, ...] = ()
    bucket: bool = False
    told: Literal["none", "once", "each time"] = "none"
    after_kill: Callable[[Store], list[str]] = lambda _: []


@dataclass
class Episode:
    """One store: kills in a row, the command once more, and what is wrong then.

    Attributes:
        kills: how the command ended after each.
        missed: starts that ended well before they could be killed.
    """

    kills: list[int] = field(default_factory=list)
    missed: int = 0
    problems: list[str] = field(default_factory=list)


class World:
    """A folder with raw data, a home and a temporary folder, in which a case's command is killed again and again."""

    def __init__(self, folder: Path, case: Case, bucket_root: str, emulator: str) -> None:
        """Run the command undisturbed; a root is a folder, or a prefix in the emulator's bucket."""
        self.folder, self.case, self._bucket_root, self._emulator = folder, case, bucket_root, emulator
        for name in ("home", "tmp", "logs"):
            (folder / name).mkdir()
        self._prepared = str(folder / "prepared")
        for before in case.before:
            self._run(before, self._prepared)
        self._undisturbed = self._fresh("undisturbed")
        started = time.monotonic()
        self._run(case, self._undisturbed)
        self.seconds = time.monotonic() - started
        self._expected = comparable(open_store(self._undisturbed))
        assert self._problems(self._undisturbed, Episode()) == []

    def episode(self, chance: random.Random, most: int) -> Episode:
        """Kill the command some times in a row, at most so often, and let it come to its end."""
        root, episode = self._fresh(f"killed-{uuid.uuid4().hex[:8]}"), Episode()
        for _ in range(min(most, chance.randint(1, _KILLS_IN_A_ROW))):
            code = self._kill(root, chance)
            if code is None:
                episode.missed += 1
                break
            episode.kills.append(code)
            if code not in (-signal.SIGKILL, _TRY_AGAIN, 0):
                episode.problems.append(f"a kill ended with {code}, not {_TRY_AGAIN}; see {self._log}")
            episode.problems += self.case.after_kill(open_store(root))
        with self._started(self.case, root) as process:
            if code := process.wait(_PATIENCE):
                episode.problems.append(f"ended with {code} though nobody killed it; see {self._log}")
        episode.problems += self._problems(root, episode)
        if not episode.problems:
            store: Store = open_store(root)
            shutil.rmtree(store.root if isinstance(store, FolderStore) else store.scratch, ignore_errors=True)
        return episode

    def _kill(self, root: str, chance: random.Random) -> int | None:
        """Give the command and kill it, or a process that it started; None if it ended well before that.

        Every second kill comes while the command writes to the store.
        """
        writing, at = chance.random() < 0.5, chance.random()
        children, at_once = chance.random() < 1 / 3, chance.random() < 0.5
        with self._started(self.case, root) as process:
            moment = at * self.seconds
            if writing:
                store = open_store(root)
                before = [*store.listing()]
                while process.poll() is None and [*store.listing()] == before:
                    time.sleep(_POLL)
                moment /= 2
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(moment)
            if process.poll() is not None:
                assert process.poll() == 0, f"ended with {process.poll()} though nobody killed it; see {self._log}"
                return None
            below = [each for each in self._living() if each != process.pid] if children else []
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(sorted(below)) if below else process.pid, signal.SIGKILL)
            code = process.wait(_PATIENCE)
        if not at_once:
            self._wait_for_orphans()
        return code

    def _problems(self, root: str, episode: Episode) -> list[str]:
        """What is not as it should be, once all is done."""
        store, found = open_store(root), []
        left = self._wait_for_orphans()
        found += [f"process {each} still runs" for each in left]
        different = differences(comparable(store), self._expected)
        found += [f"{name} is not what it is undisturbed" for name in different]
        wrong = verify(store, silent()).problems
        found += wrong
        for folder in (store.scratch / "tmp", self.folder / "tmp"):
            found += [f"{each} is left over" for each in (folder.iterdir() if folder.is_dir() else ())]
        found += [f"{each} is left over" for each in self.folder.glob("cache/objects/*.half")]
        locks = [*store.scratch.glob("locks/*"), *store.scratch.glob("uses/*"), *self.folder.glob("cache/locks/*")]
        locks += [self._train_lock] if self._train_lock.exists() else []
        for each in locks:
            with locked(each, wait=False) as free:
                found += [] if free else [f"{each} is locked"]
        found += [f"{each} is in the user's home" for each in (self.folder / "home").iterdir()]
        ended = 1 + episode.missed + episode.kills.count(0)
        # One that was killed when it had told of its end is counted as well.
        most = ended + episode.kills.count(-signal.SIGKILL)
        least, most = {"none": (0, 0), "once": (1, 1), "each time": (ended, most)}[self.case.told]
        if not least <= (finished := ended_runs(store).count("finished")) <= most:
            found.append(f"the ledger has {finished} finished runs vs {least} to {most}")
        return found

    def _fresh(self, name: str) -> str:
        """A root with what the case needs before it begins."""
        folder = self.folder / name
        prepared = FolderStore(Path(self._prepared))
        if not self.case.bucket:
            if Path(self._prepared).is_dir():
                shutil.copytree(self._prepared, folder, ignore=shutil.ignore_patterns(".podline"))
            return str(folder)
        store = open_store(f"{self._bucket_root}{name}")
        for each in prepared.list():
            store.publish_file(prepared.local(each), each)
        return store.uri

    @contextlib.contextmanager
    def _started(self, case: Case, root: str) -> Iterator[subprocess.Popen[bytes]]:
        words = [word.format(root=root) for word in case.command]
        given = self.folder / "spec.json"
        given.write_text("" if case.spec is None else json.dumps({"root": root, **case.spec}))
        with self._log.open("ab") as log, given.open("rb") as stdin:
            log.write(f"\n$ podline {' '.join(words)}\n".encode())
            log.flush()
            process = subprocess.Popen(
                [sys.executable, "-m", "podline.cli", *words],
                stdin=stdin,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._environment(),
                start_new_session=True,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _run(self, case: Case, root: str) -> None:
        with self._started(case, root) as process:
            assert process.wait(_PATIENCE) == 0, self._log.read_text()[-3000:]

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "PODLINE_", "XDG_"))
        }
        return {
            **kept,
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "STORAGE_EMULATOR_HOST": self._emulator,
            "PODLINE_STORE_CACHE": str(self.folder / "cache"),
            "PODLINE_TRAIN_LOCK": str(self._train_lock),
            _MARK: str(self.folder),
        }

    @property
    def _train_lock(self) -> Path:
        return self.folder / "train.lock"

    @property
    def _log(self) -> Path:
        return self.folder / "logs" / f"{self.case.name.replace(' ', '-')}.log"

    def _living(self) -> list[int]:
        return [each for each in marked(_MARK, str(self.folder)) if parent(each) is not None]

    def _wait_for_orphans(self) -> list[int]:
        """The processes that are left in the end; there should be none."""
        deadline = time.monotonic() + _ORPHANS
        while (left := self._living()) and time.monotonic() < deadline:
            time.sleep(_POLL)
        return left


def killed(world: World, kills: int, seed: int) -> list[str]:
    """Kill a world's command so many times; print a line for each store, and return what is wrong."""
    chance, done, wrong = random.Random(seed), 0, list[str]()
    while done < kills:
        episode = world.episode(chance, kills - done)
        done += len(episode.kills)
        wrong += episode.problems
        verdict = "; ".join(episode.problems) or "the same bytes"
        sys.stdout.write(f"{world.case.name}: {done} of {kills} kills {episode.kills}; in the end {verdict}\n")
    return wrong
