"""The Prefect server of an embedded run: started early, restarted after a crash, always ended."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import sys
import threading

from podline.base.errors import PodlineError
from podline.base.secret import new
from podline.settings import environment
from podline.stages.supervision import processes
from podline.store.contract import Store, explained

# A machine may have one of the two alone.
_HOSTS = (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6))
_STOP_SECONDS = 5.0
_STARTS = 4
_SERVER = ("podline.deployments.server", "--until-input-ends")


class OwnServer:
    """A server on a socket that this process holds: requests wait at the socket while no server runs.

    So callers need not poll a starting server, and a server that is killed during a run only costs the time of a new
    start.
    """

    def __init__(self, store: Store) -> None:
        """Start the server, and configure this process as its client; Prefect must not be imported before.

        Args:
            store: the store for its home and its log.

        Raises:
            StoreError: the store cannot be written.
            PodlineError: this machine has no loopback address.
        """
        self._home, self._log = store.scratch / "prefect", store.scratch / "logs" / "prefect.log"
        store.own_folder("prefect")
        store.own_folder("logs")
        with explained("write to the store", store.uri):
            # Also the first write that would detect a full disk.
            self._log.write_text("what Prefect's server says:\n")
        self._socket = _listening()
        self._host, self._port = self._socket.getsockname()[:2]
        host = f"[{self._host}]" if ":" in self._host else self._host
        # The secret is known to this process and its children; no other program needs this server.
        environment.use_embedded_prefect(self._home, f"http://{host}:{self._port}/api", new())
        self._stopping, self._changes = False, threading.Lock()
        self._process = self._start()
        self._keeper = threading.Thread(target=self._keep_up, name="prefect-server", daemon=True)
        self._keeper.start()

    def wait(self, seconds: float) -> None:
        """Wait until the server answers.

        Raises:
            PodlineError: the server does not start.
        """
        connection = http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        try:
            connection.request("GET", "/api/health")
            status: object = connection.getresponse().status
        except TimeoutError:
            status = f"nothing within {seconds:g} s, the setting server_timeout"
        except (OSError, http.client.HTTPException) as error:
            status = error
        finally:
            connection.close()
        if status != http.HTTPStatus.OK:
            raise PodlineError(f"Prefect's server does not answer ({status}); see {self._log}")

    def stop(self) -> None:
        """End the server with all its processes."""
        with self._changes:
            self._stopping = True
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        processes.kill_group(self._process.pid)
        self._keeper.join()
        self._socket.close()

    def _start(self) -> subprocess.Popen[bytes]:
        listen_fd = str(self._socket.fileno())
        with self._log.open("ab") as output:
            return subprocess.Popen(  # noqa: S603 (our own module, in our own interpreter)
                [sys.executable, "-P", "-m", *_SERVER, "--listen-fd", listen_fd],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(self._socket.fileno(),),
                start_new_session=True,
            )

    def _keep_up(self) -> None:
        for _ in range(_STARTS - 1):
            self._end()
            with self._changes:
                if self._stopping:
                    return
                self._process = self._start()
        self._end()
        if not self._stopping:
            # Requests that wait at the socket fail at once.
            self._socket.close()

    def _end(self) -> None:
        self._process.wait()
        assert self._process.stdin is not None  # noqa: S101 (it is a pipe)
        self._process.stdin.close()


def _listening() -> socket.socket:
    """Return a socket on a free port of a loopback address.

    Raises:
        PodlineError: there is no such address.
    """
    for host, family in _HOSTS:
        with contextlib.suppress(OSError):
            return socket.create_server((host, 0), family=family)
    raise PodlineError(
        "this machine has neither 127.0.0.1 nor ::1, where Prefect's server listens; run `ip link set lo up`"
    )
