"""The limit that lets one flow at a time use the TPU, on a real server."""

from __future__ import annotations

import contextlib

import pytest
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound

from podline.errors import TpuSetupError
from tasks import tpu_use


@pytest.mark.usefixtures("prefect_server")
def test_without_its_limit_the_lease_is_refused_with_the_command_that_makes_it() -> None:
    with get_client(sync_client=True) as client, contextlib.suppress(ObjectNotFound):
        client.delete_global_concurrency_limit_by_name(tpu_use.LIMIT)
    with pytest.raises(TpuSetupError, match="prefect global-concurrency-limit create tpu --limit 1"), tpu_use.lease():
        pass
    tpu_use.make_limit()
    with tpu_use.lease(), get_client(sync_client=True) as client:
        assert client.read_global_concurrency_limit_by_name(tpu_use.LIMIT).active_slots == 1
    with get_client(sync_client=True) as client:
        assert client.read_global_concurrency_limit_by_name(tpu_use.LIMIT).active_slots == 0
