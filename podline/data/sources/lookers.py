"""Processes that look at image files while the annotations are parsed.

Threads would only wait for each other: what is to be done with a file is fifteen short calls that let go of the
interpreter's lock, and each has to get it back from the thread that reads annotations.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from podline.cores import usable_cores
from podline.data.sources import image_files
from podline.data.sources.image_files import ImageFile, Seen, seen_in_a_row
from podline.data.sources.jpeg import Jpeg

# To start one takes a tenth of a second of a core, in which one that runs looks at a thousand files.
_FILES_FOR_ONE = 2_000
_MOST = 4  # more than one can read the annotations for


class Lookers:
    """Helpers that are started when there is enough to do, and end with the body of the ``with`` statement.

    One that fails, or is killed, costs time only: what it does not answer is looked at here. One whose parent is killed
    ends by itself.
    """

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()  # it has nothing that could be half done
            process.communicate()

    def start(self, files: int) -> int:
        """Starts what helpers so many files are worth; returns how many there are."""
        wanted = min(files // _FILES_FOR_ONE, usable_cores(), _MOST)
        while len(self._processes) < wanted:
            command = [sys.executable, "-P", "-m", image_files.__name__]
            pipe = subprocess.PIPE
            try:
                process = subprocess.Popen(command, stdin=pipe, stdout=pipe)  # noqa: S603 (our own module)
            except OSError:
                break  # no room for a process: those that are there do
            self._processes.append(process)
            self._free.put(process)
        return len(self._processes)

    def see(self, files: Sequence[ImageFile | None]) -> list[Seen | None]:
        """Looks at some files, as :func:`seen_in_a_row`, in the next process that is free; if there are none, in this.

        Threads may call it, one more than there are processes, so that none has to wait for a question.
        """
        if not self._processes:
            return seen_in_a_row(files)
        process = self._free.get()
        try:
            return _ask(process, files)
        except (OSError, ValueError):
            return seen_in_a_row(files)
        finally:
            self._free.put(process)


def _ask(process: subprocess.Popen[bytes], files: Sequence[ImageFile | None]) -> list[Seen | None]:
    """Asks a helper.

    Raises:
        OSError: it is gone.
        ValueError: it ended before it answered.
    """
    if process.stdin is None or process.stdout is None:
        raise ValueError("a helper without pipes")
    process.stdin.write(json.dumps(files).encode() + b"\n")
    process.stdin.flush()
    answers = json.loads(process.stdout.readline())
    return [answer and Seen(answer[0], answer[1], answer[2] and Jpeg(*answer[2]), answer[3]) for answer in answers]
