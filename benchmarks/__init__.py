"""Our way beside the plain way, measured here and now: ``podline benchmark``.

Every benchmark gives both sides the same input, takes turns between them within one run, and compares medians. Nothing
here imports TensorFlow: measurements happen in child processes.
"""

from benchmarks.catalogue import BENCHMARKS, Benchmark
from benchmarks.row import BenchmarkRow
from benchmarks.running import run

__all__ = ["BENCHMARKS", "Benchmark", "BenchmarkRow", "run"]
