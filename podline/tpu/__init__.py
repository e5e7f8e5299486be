"""Cloud TPUs: their health, their users, when one may be used, and how to get it back.

===================== ===============================================================================================
module                holds
===================== ===============================================================================================
``gate``              waits and repairs until the policy says go; a TPU at a glance
``policy``            the gate's table: go, wait, restart, recreate, give up
``recovery``          stop and start, delete and make again
``watch``             looks after a TPU while a training runs on it
``patrol``            the table of what is left over between runs
``client``            the Cloud TPU API; with ``api_errors`` all that imports Google's client
``node``              nodes, requests and symptoms as plain frozen values
``notices``           announcements of the metadata server of a TPU VM
``lock``              libtpu's lock, and the process that has it
``turn``              one user at a time on this machine, and a pause between two
``tensorflow_errors`` failures of TensorFlow, transient and permanent
``tpu_log``           what happened and how long it took
``clock``             the clock that every wait asks
===================== ===============================================================================================
"""
