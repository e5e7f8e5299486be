"""Names of the engines, which define where a conversion's Beam job runs. Needs no Beam.

======================  =============================================================================================
name                    where
======================  =============================================================================================
``local``               Beam's own runner in this process; with several workers, each worker is a process
``dask:ADDRESS``        a Dask cluster, by the address of its scheduler: ``dask:scheduler:8786``
``prism``               Beam's Prism, started on this machine
``dataflow``            Google Cloud Dataflow
``job-server:ADDRESS``  a Beam job server, such as Flink's or Spark's, by its host and port
======================  =============================================================================================

:mod:`podline.beam_jobs.engines` turns a name into a Beam runner.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from podline.base.frozen import name_check

LOCAL, PRISM, DATAFLOW, DASK = "local", "prism", "dataflow", "dask"
NAMES = "local, dask:ADDRESS, prism, dataflow or job-server:ADDRESS"
PATTERN = r"local|prism|dataflow|(dask|job-server):\S+"
checked = name_check("engine", PATTERN, NAMES)


EngineName = Annotated[str, AfterValidator(checked), WithJsonSchema({"type": "string", "pattern": f"^({PATTERN})$"})]
