"""A process that makes a model the champion, again and again, and may be killed on the way; see test_champions.py.

crowning.py race ROOT RUN ROUNDS    at the same time as another process, each round against the same champion
crowning.py kill ROOT               a folder: a new process for each file operation, killed when it comes to it
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

from podline.base.errors import OvertakenError
from podline.documents.champions import Candidate, champion, crown
from podline.store.opening import open_store

RECIPE = "sample"
_TOUCHES = frozenset({"open", "os.mkdir", "os.link", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"})


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def candidate(run: str) -> Candidate:
    return Candidate(run, "w" * 64, "sample", "0123456789abcdef")


def race(root: str, run: str, rounds: int) -> None:
    """Says, for each round, whether it won; what it is told if not."""
    store = open_store(root)
    for number in range(rounds):
        before = champion(store, RECIPE)
        while (before.number if before else 0) < number:
            before = champion(store, RECIPE)
        store.publish_bytes(f"gate/{number}/{run}", b"")
        while len(store.list(f"gate/{number}")) < 2:
            time.sleep(0.001)
        try:
            crown(store, RECIPE, candidate(run), before, "promoted")
            say("won")
        except OvertakenError as error:
            say(f"told: {error}")


def _killed_at(number: int) -> Callable[..., None]:
    seen = 0

    def hook(event: str, _arguments: object) -> None:
        nonlocal seen
        if event in _TOUCHES:
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def kill(root: str) -> None:
    """Says, for each operation, the run that is the champion afterwards; the last process lived."""
    store = open_store(root)
    for number in range(1, 1000):
        child = os.fork()
        if child == 0:
            before = champion(store, RECIPE)
            sys.addaudithook(_killed_at(number))
            crown(store, RECIPE, candidate(f"new-{number}"), before, "promoted")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        now = champion(store, RECIPE)
        say(f"{'killed' if os.WIFSIGNALED(status) else 'lived'} {now.run if now else 'none'}")
        if not os.WIFSIGNALED(status):
            return


if __name__ == "__main__":
    act, root, *rest = sys.argv[1:]
    if act == "race":
        race(root, rest[0], int(rest[1]))
    else:
        kill(root)
