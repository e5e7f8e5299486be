"""A Slurm of two nodes on this machine: munged, slurmctld and two slurmd, all in one folder. Needs root."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from waiting import wait_until

# Names that are addresses need no name service.
NODES = ("127.0.0.1", "127.0.0.2")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun")
_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
AuthType=auth/munge
AuthInfo=socket={short}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdSpoolDir={short}/spool-%n
StateSaveLocation={folder}/state
NodeName={nodes[0]} NodeHostname={host} NodeAddr={nodes[0]} Port={ports[1]} CPUs={cpus}
NodeName={nodes[1]} NodeHostname={host} NodeAddr={nodes[1]} Port={ports[2]} CPUs={cpus}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def missing() -> list[str]:
    """Return what this machine lacks for such a Slurm: Debian's slurm-wlm, and root."""
    programs = [name for name in _PROGRAMS if shutil.which(name) is None]
    return programs if os.geteuid() == 0 else [*programs, "root"]


@contextlib.contextmanager
def slurm(folder: Path, ports: list[int]) -> Iterator[dict[str, str]]:
    """Yield the environment in which srun and sbatch use a new Slurm."""
    # The path of a socket has at most 108 bytes.
    with tempfile.TemporaryDirectory(prefix="slurm-") as short, _slurm(folder, Path(short), ports) as environment:
        yield environment


@contextlib.contextmanager
def _slurm(folder: Path, short: Path, ports: list[int]) -> Iterator[dict[str, str]]:
    user, host = getpass.getuser(), socket.gethostname().partition(".")[0]
    for path in (folder / "state", *(short / f"spool-{node}" for node in NODES)):
        path.mkdir()
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    conf = folder / "slurm.conf"
    conf.write_text(
        _CONF.format(
            host=host, user=user, folder=folder, short=short, ports=ports, nodes=NODES, cpus=os.cpu_count()
        ).lstrip()
    )
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    munge = [
        *("munged", "--foreground", "--force", f"--socket={short}/munge.socket", f"--key-file={folder}/munge.key"),
        *(f"--pid-file={folder}/munge.pid", f"--seed-file={folder}/munge.seed", f"--log-file={folder}/munge.log"),
    ]
    daemons = [munge, ["slurmctld", "-D", "-i"], *(["slurmd", "-D", "-N", node] for node in NODES)]
    with contextlib.ExitStack() as stack:
        for command in daemons:
            with (folder / f"{command[0]}.out").open("ab") as output:
                process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            wait_until(lambda command=command: command is not munge or (short / "munge.socket").exists())
        wait_until(lambda: _idle(environment) == len(NODES), log=folder / "slurmctld.log")
        yield environment


def _idle(environment: dict[str, str]) -> int:
    command = ["sinfo", "-h", "-N", "-t", "idle", "-o", "%N"]
    return len(subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.split())
