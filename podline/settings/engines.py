"""Names of the engines, which define where a conversion's Beam job runs. Needs no Beam.

========================  ===========================================================================================
name                      where
========================  ===========================================================================================
``local``                 Beam's own runner in this process; with several workers, each worker is a process
``dask:HOST:PORT``        a Dask cluster, by the address of its scheduler: ``dask:tls://scheduler:8786``
``prism``                 Beam's Prism, started on this machine
``dataflow``              Google Cloud Dataflow
``job-server:HOST:PORT``  a Beam job server, such as Flink's or Spark's
========================  ===========================================================================================

:mod:`podline.beam_jobs.engines` turns a name into a Beam runner.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from podline.base.frozen import name_check

LOCAL, PRISM, DATAFLOW, DASK = "local", "prism", "dataflow", "dask"
NAMES = "local, dask:HOST:PORT, prism, dataflow or job-server:HOST:PORT"
_HOST = r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)"
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
PATTERN = rf"local|prism|dataflow|(dask:((tcp|tls|ucx|ws|wss)://)?|job-server:){_HOST}:{_PORT}"
checked = name_check("engine", PATTERN, NAMES)


EngineName = Annotated[str, AfterValidator(checked), WithJsonSchema({"type": "string", "pattern": f"^({PATTERN})$"})]
