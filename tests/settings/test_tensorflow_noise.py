"""TensorFlow's start is silent in a process that asked for it, and hides nothing that another library says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
from podline.settings.tensorflow_noise import quiet_tensorflow
quiet_tensorflow()
quiet_tensorflow()
import tensorflow
print(tensorflow.looked, len(sys.meta_path), file=sys.stderr)
os.write(2, b"I0000 00:00:1.2 3 later.cc:1] after the start\\n")
"""
# In place of the real one, which takes ten seconds and says different things on each machine.
STANDIN = """
import os, sys
os.write(2, b'''I0000 00:00:1.2 3 cudart_stub.cc:31] Could not find cuda drivers
W0000 00:00:1.2 3 gpu_device.cc:2342] Cannot dlopen some GPU libraries.
''')
class config:
    def list_physical_devices(kind):
        global looked
        looked = kind
        os.write(2, b'E0000 00:00:1.2 3 cuda_platform.cc:52] failed call to cuInit: (303)\\n')
        print('a library warns', file=sys.stderr)
"""
KEPT = ["W0000 00:00:1.2 3 gpu_device.cc:2342] Cannot dlopen some GPU libraries.", "a library warns"]


def started(folder: Path, standin: str) -> subprocess.CompletedProcess[str]:
    (folder / "tensorflow.py").write_text(standin)
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_only_the_lines_of_every_start_are_left_out_and_only_at_the_start(tmp_path: Path) -> None:
    found = started(tmp_path, STANDIN)
    *before, looked, later = found.stderr.splitlines()
    assert before == KEPT
    assert looked.startswith("GPU ")
    assert later.endswith("after the start")


def test_the_last_words_of_a_library_that_aborts_are_still_there(tmp_path: Path) -> None:
    found = started(tmp_path, "import os; os.write(2, b'F0000 libtpu.so is not available\\n'); os.abort()")
    assert (found.returncode, found.stderr) == (-6, "F0000 libtpu.so is not available\n")
