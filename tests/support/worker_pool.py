"""A pool of Beam workers on a machine of its own, as far as namespaces go: of mounts and of the network."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dask_cluster import ALONE

# Hands connections on from one address to another, as `ssh -L` and `ssh -R` do. Prism says to all workers that it is at
# localhost, and so does the stand-in for the bucket.
_TUNNEL = """
import asyncio, sys
async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
async def main(here, there, *ports):
    async def connect(port, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection(there, port)
        except OSError:
            return writer.close()
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
    for port in ports:
        handler = lambda reader, writer, port=port: connect(port, reader, writer)
        await asyncio.start_server(handler, here, int(port))
    await asyncio.Event().wait()
asyncio.run(main(*sys.argv[1:]))
"""


@functools.cache
def can_have_network() -> bool:
    """Return whether this user can make a network namespace."""
    name = f"podline-{uuid.uuid4().hex[:6]}"
    commands = (["ip", "netns", "add", name], ["ip", "netns", "del", name])
    with contextlib.suppress(FileNotFoundError):
        return all(subprocess.run(line, capture_output=True, check=False).returncode == 0 for line in commands)
    return False


@contextlib.contextmanager
def worker_pool(folder: Path, hidden: Path, more: Mapping[str, str], ports: Sequence[int] = ()) -> Iterator[str]:
    """Yield the address of a pool that is gone when the body ends.

    Args:
        folder: an empty one, for the log and for what workers write.
        hidden: what workers must not see.
        more: variables of the workers' environment.
        ports: of this machine, all that workers reach from a network of their own; none is this machine's network.
    """
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        start = functools.partial(_started, stack, folder)
        inside, address = stack.enter_context(_network()) if ports else ((), "127.0.0.1")
        if ports:
            host, numbers = f"{address.rpartition('.')[0]}.1", [str(port) for port in ports]
            bucket = [number for number in numbers if not _listens(host, int(number))]
            start("tunnel here", {}, sys.executable, "-c", _TUNNEL, host, "127.0.0.1", *bucket)
            start("tunnel there", {}, *inside, sys.executable, "-c", _TUNNEL, "127.0.0.1", host, *numbers)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        own = {"HIDDEN": str(hidden), "PODLINE_STORE_CACHE": str(folder / "cache"), "HOME": str(folder)}
        # The pool starts plain `python`.
        environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **own, **more}
        apart = ("unshare", "-m", "--propagation", "private", "sh", "-c", ALONE, "sh")
        pool = (sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}")
        start("pool", environment, *inside, *apart, *pool)
        deadline = time.monotonic() + 240
        while not _listens(address, port):
            assert time.monotonic() < deadline, (folder / "pool").read_text()
            time.sleep(0.1)
        yield f"{address}:{port}"


def _started(stack: contextlib.ExitStack, folder: Path, name: str, more: Mapping[str, str], *command: str) -> None:
    """Start a process that ends, with all that it started, when the stack does."""
    log = stack.enter_context((folder / name).open("wb"))
    process = subprocess.Popen(
        command,
        env={**os.environ, **more},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait(240)

    stack.callback(end)


@contextlib.contextmanager
def _network() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what starts a command in a network of its own, and that network's address; this machine's ends in 1."""
    number = os.getpid() % 200 + 20
    name, near, far = f"podline-{uuid.uuid4().hex[:6]}", f"pl{number}a", f"pl{number}b"
    commands = (
        f"ip netns add {name}",
        f"ip link add {near} type veth peer name {far} netns {name}",
        f"ip addr add 10.243.{number}.1/30 dev {near}",
        f"ip link set {near} up",
        f"ip -n {name} addr add 10.243.{number}.2/30 dev {far}",
        f"ip -n {name} link set {far} up",
        f"ip -n {name} link set lo up",
    )
    try:
        for command in commands:
            subprocess.run(command.split(), check=True, capture_output=True)
        yield ("ip", "netns", "exec", name), f"10.243.{number}.2"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)  # and with it the link


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True
