"""Isolates a process that parses untrusted files: no network, no other programs, no access to other processes.

This needs Linux on x86-64 or 64-bit ARM. A seccomp filter refuses new sockets, io_uring (which could create sockets)
and the memory of other processes. Landlock refuses to execute programs, and to inspect processes other than this
process's children. Neither needs privileges. Both apply to all later threads, and cannot be undone. If a kernel or
container lacks one of them, only the other is used.

https://docs.kernel.org/userspace-api/seccomp_filter.html, https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2  # prctl
_CREATE_RULESET, _RESTRICT_SELF, _EXECUTE = 444, 446, 1  # Landlock, on every architecture
# Architecture → its number, and the numbers of socket, ptrace, process_vm_readv and process_vm_writev. The system calls
# io_uring_setup and pidfd_getfd have the same numbers everywhere.
_ARCHITECTURES = {"x86_64": (0xC000003E, 41, 101, 310, 311), "aarch64": (0xC00000B7, 198, 117, 270, 271)}
_EVERYWHERE = (425, 438)
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_OTHER_NUMBERS = 0x40000000  # x32: the same calls with other numbers
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050001  # EPERM


def isolate() -> None:
    """Isolate this process; call this before any other thread starts, since running threads are not isolated."""
    known = _ARCHITECTURES.get(platform.machine())
    if sys.platform != "linux" or known is None:
        return
    libc = ctypes.CDLL(None)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    handled = ctypes.c_uint64(_EXECUTE)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(8), 0)
    if ruleset >= 0:
        libc.syscall(_RESTRICT_SELF, ruleset, 0)
        os.close(ruleset)
    program = _program(*known)
    code = ctypes.create_string_buffer(program)
    filtered = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))
    libc.prctl(_SECCOMP, _FILTER, filtered, 0, 0)


def _program(architecture: int, *calls: int) -> bytes:
    """Return the seccomp filter as Linux's ``struct sock_filter[]``: code, jump if true, jump if false, operand."""
    refused = (*calls, *_EVERYWHERE)
    last = len(refused)  # instructions from the first comparison of a call to the refusal
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 0, last + 3, architecture),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, last + 1, 0, _OTHER_NUMBERS),
        *((_EQUAL, last - at, 0, call) for at, call in enumerate(refused)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
