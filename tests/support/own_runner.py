"""A Beam runner with an option of its own, as Dask's and others have."""

from __future__ import annotations

from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner


class OwnOptions(PipelineOptions):
    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument("--own_address")


class OwnRunner(PipelineRunner):
    pass
