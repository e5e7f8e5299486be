"""A Ray of two nodes on this machine."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_ports

PROJECT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def ray_cluster(*, dashboard: bool) -> Iterator[Any]:
    """Yield a cluster whose ``python`` is this one, with Podline; skip a test where Ray is missing."""
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="needs Ray")
    head = {"num_cpus": 1, "include_dashboard": dashboard, "dashboard_port": free_ports(1)[0]}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(PROJECT))
        environment.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        nodes = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        try:
            nodes.add_node(num_cpus=1)
            yield nodes
        finally:
            nodes.shutdown()
