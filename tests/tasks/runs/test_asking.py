"""Errors of Prefect's client become one line; this fails if Prefect raises them in another way."""

from __future__ import annotations

import pytest
from prefect import flow
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from standing_prefect import free_port

from podline.errors import ServerAwayError
from podline.tasks.runs.asking import explained


@flow
def nothing() -> None:
    """Never begins."""


def test_a_flow_whose_server_is_away_says_so() -> None:
    url = f"http://127.0.0.1:{free_port()}/api"
    with temporary_settings({PREFECT_API_URL: url, PREFECT_CLIENT_MAX_RETRIES: 0}):
        with pytest.raises(ServerAwayError, match=f"the Prefect server {url} does not answer"), explained():
            nothing()
        with pytest.raises(RuntimeError, match="another"), explained():
            raise RuntimeError("another")
