"""Limits on parsing one untrusted item, and the outcome of an item that exceeds a limit."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import NamedTuple

_OF_USER = (resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_DATA)[1])


class ParseLimits(NamedTuple):
    """The limits of parsing one item.

    Attributes:
        memory: bytes of memory, in addition to those that the child process uses before it begins with some items, or
            with a file that it names; see :func:`podline.data.sandbox.child.begin`.
        seconds: CPU seconds of all threads together.
        wait: wall-clock seconds, in addition to four times the CPU seconds.
    """

    memory: int
    seconds: float
    wait: float = 10.0

    @property
    def patience(self) -> float:
        """Return the wall-clock limit in seconds."""
        return 4 * self.seconds + self.wait

    def times(self, factor: float) -> ParseLimits:
        """Return the limits with memory and CPU time multiplied by a factor."""
        return ParseLimits(int(self.memory * factor), self.seconds * factor, self.wait)


def limits_of(size: int, memory: float = 4.0, rate: float = 20e6) -> ParseLimits:
    """Return the limits for parsing an input of ``size`` bytes.

    Args:
        size: bytes of the input.
        memory: bytes of memory per byte of the input; 64 MB are added.
        rate: least number of bytes parsed per CPU second; 0.4 s are added.
    """
    return ParseLimits(64_000_000 + int(memory * size), 0.4 + size / rate)


@dataclass(frozen=True)
class Breach:
    """An exceeded limit of an item, or a crash of its parser.

    Attributes:
        reason: the event, as a phrase after the item's name.
        limited: whether higher limits could help.
        what: the parsed file, if the parser named it with :func:`podline.data.sandbox.child.begin`.
        killed: whether SIGKILL ended the process, from another process or because memory ran out.
    """

    reason: str
    limited: bool
    what: str = ""
    killed: bool = False

    def refusal(self, what: str, factor: float) -> str:
        """Return an error's text: the parsed file, or else ``what``, the event and, for a limit, the remedy."""
        remedy = f" to read (parse_limits={factor:g}); if you trust it, raise the setting parse_limits"
        return f"{self.what or what} {self.reason}{remedy if self.limited else ''}"


def too_much_memory(limits: ParseLimits, what: str) -> Breach:
    """Return the breach of a memory limit: the limit of the item, or the user's `ulimit`, which may be lower."""
    users = min(_OF_USER, key=lambda limit: limit % (1 << 64))  # without a limit it is -1
    or_users = f" or the {users / 1e6:,.0f} MB of `ulimit -v` or `-d`" if users != resource.RLIM_INFINITY else ""
    return Breach(f"takes more than {limits.memory / 1e6:,.0f} MB{or_users} of memory", limited=True, what=what)
