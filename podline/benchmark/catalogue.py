"""The benchmarks by name: each asks child processes for seconds and bytes, and turns them into rows.

Nothing here imports TensorFlow or Beam; the modules that measure do, in the processes that :mod:`podline.benchmark.child`
starts.
"""
