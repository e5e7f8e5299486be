from __future__ import annotations

from podline.supervision import stacks

DUMP = """something that a library said
Thread 0x00007f0000000001 (most recent call first):
  File "/opt/lib/python3.11/site-packages/numpy/lib/io.py", line 7 in read
  File "{ours}/data/reader.py", line 71 in gather

Thread 0x00007f0000000002 (most recent call first):
  File "/opt/lib/python3.11/threading.py", line 320 in wait

Thread 0x00007f0000000003 (most recent call first):
  File "/opt/lib/python3.11/threading.py", line 320 in wait

Current thread 0x00007f0000000004 (most recent call first):
  File "{ours}/training/steps.py", line 66 in advance
"""


def test_each_thread_is_where_it_is_and_where_it_came_from():
    assert stacks.where(DUMP.format(ours=stacks._OURS)).splitlines() == [
        "main thread: podline/training/steps.py:66 in advance",
        "another thread: numpy/lib/io.py:7 in read, called from podline/data/reader.py:71 in gather",
        "another thread: /opt/lib/python3.11/threading.py:320 in wait",
    ]


def test_a_process_that_did_not_answer_is_said_to_have_not():
    assert stacks.where("Killed") == "its threads wrote no stacks"
