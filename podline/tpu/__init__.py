"""Cloud TPUs: what state they are in, who has them, when one may be used, and how to get it back.

===================== ===============================================================================================
module                holds
===================== ===============================================================================================
``settings``          what the caller gives: project, node, endpoint, machine, delays and budgets
``clock``             the clock that every wait asks
``node``              nodes, queued resources and symptoms as plain frozen values
``client``            the Cloud TPU API; with ``messages`` and ``api_errors`` all that imports Google's client
``notices``           what the metadata server of a TPU VM announces
``lock``              the lock that libtpu takes, and the process that has it
``reservation``       one user at a time on this machine, and a pause between two
``policy``            the table: go, wait, restart, recreate, give up
``recovery``          stop and start, delete and make again
``gate``              waits and repairs until the policy says go
``watch``             looks after a TPU while a training runs on it
``tensorflow_errors`` which failures of TensorFlow pass and which stay
``tpu_log``             what happened and how long it took
``status``            all of it at a glance
``patrol``            what is left over between runs, and what is done about it
===================== ===============================================================================================
"""
