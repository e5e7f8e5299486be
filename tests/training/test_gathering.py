from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from podline.cluster import Cluster
from podline.errors import WorkerLostError
from podline.training.workers import gathered


def cluster(*ports: int) -> Cluster:
    addresses = tuple(f"localhost:{port}" for port in ports)
    return Cluster(addresses=addresses, place=0)


def test_what_is_made_is_returned_and_what_fails_is_raised():
    assert gathered(lambda: "made", cluster(1)) == "made"

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gathered(fail, cluster(1))


def test_those_that_do_not_come_are_named():
    ended = threading.Event()
    with contextlib.closing(socket.create_server(("localhost", 0))) as here:
        there = here.getsockname()[1]
        with socket.socket() as nobody:
            nobody.bind(("localhost", 0))
            silent = nobody.getsockname()[1]
            with pytest.raises(WorkerLostError, match="fewer workers than the 3 expected") as caught:
                gathered(ended.wait, cluster(1, there, silent), seconds=0.3)
        ended.set()
    assert f"worker 2 (localhost:{silent}) does not answer" in str(caught.value)
    assert f"localhost:{there}" not in str(caught.value)
