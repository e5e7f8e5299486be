"""Finds the processes that train together, from environment variables that a launcher sets. Needs no TensorFlow.

============= ========================================== ========================== ====================================
launcher      where                                      which process this is      host names
============= ========================================== ========================== ====================================
``TF_CONFIG`` set by a person, or by ``--launch ray:…``  ``task``                   ``cluster``
Slurm         a step of ``srun``, one task a node        ``SLURM_PROCID``           ``SLURM_STEP_NODELIST``
Kubernetes    an Indexed Job, alone or in a JobSet       ``JOB_COMPLETION_INDEX``   the pod's own, with other indices
============= ========================================== ========================== ====================================

If several launchers have set variables, they must agree on the number of processes and on the index of this process.
The first launcher in the table defines the addresses.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from podline.base.errors import SettingsError
from podline.base.plurals import plural
from podline.settings import cluster as clusters
from podline.settings.cluster import Cluster

_HOSTS = re.compile(r"([1-9][0-9]{0,3})(\.\.([1-9][0-9]{0,3}))?")
_SLURM_NODES = re.compile(r"([^,\[]+)(?:\[([^\]]+)\]([^,\[]*))?(?:,|$)")


def host_range(text: str) -> str:
    """Check the setting ``hosts``: a number, a range ``2..4``, or empty for any number; return it unchanged.

    Raises:
        ValueError: the text is neither a number nor a range, or the range is not in order.
    """
    match = _HOSTS.fullmatch(text)
    if text and (match is None or int(match[1]) > int(match[3] or match[1])):
        raise ValueError(f"got {text!r}, expected a number of hosts, or a range such as 2..4")
    return text


class Wanted(NamedTuple):
    """The settings for the processes.

    Attributes:
        port: port of the first process; each further process uses the next port.
        hosts: number of processes, ``4`` or ``2..4``; empty for any number.
    """

    port: int
    hosts: str

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest number of hosts."""
        least, _, most = self.hosts.partition("..")
        return int(least or 1), int(most or least or 2**31)

    def addresses(self, names: list[str]) -> tuple[str, ...]:
        """Return ``host:port`` of each process; the ports differ, so that several processes can share a machine."""
        return tuple(f"{name}:{self.port + place}" for place, name in enumerate(names))


def discover(environment: Mapping[str, str], wanted: Wanted) -> Cluster:
    """Return the processes that train together.

    Args:
        environment: environment of this process.
        wanted: the settings.

    Raises:
        SettingsError: no launcher has set its variables, launchers contradict each other, or the setting ``hosts`` does
            not allow the number of processes.
    """
    found = {name: cluster for name, read in _LAUNCHERS.items() if (cluster := read(environment, wanted))}
    if not found:
        raise SettingsError(
            "strategy=workers: no launcher has set its variables; start by srun (Slurm) or as an Indexed Job of "
            f"Kubernetes, or set {clusters.VARIABLE}, for example {clusters.VARIABLE}='{clusters.EXAMPLE}'"
        )
    first, *others = found
    for other in others:
        if (one := _part(found[first])) != (two := _part(found[other])):
            raise SettingsError(
                f"strategy=workers: got {one} from {first} and {two} from {other}, expected the same; "
                f"start every process by only one of them; if one is {clusters.VARIABLE}, unset it"
            )
    count, (least, most) = len(found[first].addresses), wanted.bounds
    if not least <= count <= most:
        raise SettingsError(
            f"strategy=workers: got {plural(count, 'process', 'processes')} from {first}, expected "
            f"hosts={wanted.hosts}; start that number of processes, or change the setting hosts"
        )
    return found[first]


def sharing(available: int, wanted: Wanted, batch_sizes: Iterable[int], replicas: int = 1) -> int:
    """Return the largest number of hosts (up to ``available``) among which every batch can be divided equally.

    Args:
        available: number of available hosts.
        wanted: the settings.
        batch_sizes: batch sizes of the training.
        replicas: number of replicas on each host.

    Raises:
        SettingsError: no number that the settings allow divides every batch.
    """
    sizes, (least, most) = sorted(set(batch_sizes)), wanted.bounds
    for count in range(min(available, most), least - 1, -1):
        if not any(size % (count * replicas) for size in sizes):
            return count
    shown = " and ".join(map(str, sizes))
    on_each = f" with {replicas} replicas each" if replicas > 1 else ""
    raise SettingsError(
        f"batch_size={shown} cannot be divided equally among hosts={wanted.hosts or f'1..{available}'}{on_each}; "
        "change batch_size or hosts"
    )


def slurm_nodes(text: str) -> list[str]:
    """Expand a Slurm node list, such as ``n[01-03,7],gpu``, to the names of the nodes.

    Raises:
        SettingsError: the text is not a Slurm node list.
    """
    names: list[str] = []
    end = 0
    for match in _SLURM_NODES.finditer(text):
        before, numbers, after = match.groups(default="")
        if match.start() != end or (numbers and not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", numbers)):
            break
        names += [f"{before}{number}{after}" for number in _numbers(numbers)]
        end = match.end()
    if not names or end != len(text):
        raise SettingsError(f"SLURM_STEP_NODELIST: got {text!r}, expected a list such as n[01-03],gpu; set TF_CONFIG")
    return names


def _numbers(ranges: str) -> list[str]:
    """Expand ``01-03,7`` to the numbers, with leading zeros; an empty text gives one empty string."""
    found: list[str] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        found += [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)] if last else [first]
    return found


def _by_hand(environment: Mapping[str, str], _wanted: Wanted) -> Cluster | None:
    text = environment.get(clusters.VARIABLE)
    return clusters.parse(text) if text else None


def _slurm(environment: Mapping[str, str], wanted: Wanted) -> Cluster | None:
    if "SLURM_STEP_NODELIST" not in environment:
        return None
    names = slurm_nodes(environment["SLURM_STEP_NODELIST"])
    variables = ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_NODEID")
    tasks, place, node = (_number(environment, name) for name in variables)
    if tasks != len(names) or place != node:
        raise SettingsError(
            f"Slurm: got {plural(tasks, 'task')} on {plural(len(names), 'node')} and task {place} on node {node}, "
            "expected task i on node i; use srun --ntasks-per-node=1"
        )
    return Cluster(addresses=wanted.addresses(names), place=place)


def _kubernetes(environment: Mapping[str, str], wanted: Wanted) -> Cluster | None:
    if "JOB_COMPLETION_INDEX" not in environment:
        return None
    place, (least, most) = _number(environment, "JOB_COMPLETION_INDEX"), wanted.bounds
    if least != most or place >= most:
        raise SettingsError(
            f"Kubernetes: got hosts={wanted.hosts or 'nothing'} with JOB_COMPLETION_INDEX={place}, expected the Job's "
            "number of completions; set PODLINE_HOSTS to this number in the pod"
        )
    host, _, domain = (name := socket.getfqdn()).partition(".")
    if not domain or not host.endswith(f"-{place}"):
        raise SettingsError(
            f"Kubernetes: got host name {name!r}, expected JOB-{place}.SERVICE…; give the Job's pods a subdomain with "
            "a headless service, as deployments/kubernetes does"
        )
    job = host.removesuffix(f"-{place}")
    return Cluster(addresses=wanted.addresses([f"{job}-{index}.{domain}" for index in range(most)]), place=place)


# In this order: the addresses of TF_CONFIG, which a person or Podline sets, take precedence.
_LAUNCHERS: dict[str, Callable[[Mapping[str, str], Wanted], Cluster | None]] = {
    clusters.VARIABLE: _by_hand,
    "Slurm": _slurm,
    "Kubernetes": _kubernetes,
}


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not text.isdecimal():
        raise SettingsError(f"{name}: got {text!r}, expected a number from the launcher; set TF_CONFIG instead")
    return int(text)


def _part(cluster: Cluster) -> str:
    return f"process {cluster.place} of {len(cluster.addresses)}"
