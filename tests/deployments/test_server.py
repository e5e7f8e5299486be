"""What a server with a secret answers to those who do not have it."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from prefect.settings import PREFECT_SERVER_API_AUTH_STRING, temporary_settings

from podline.deployments.server import application

DESCRIPTIONS = ("/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect")


async def _answers(secret: str, *paths: str) -> list[httpx.Response]:
    with temporary_settings({PREFECT_SERVER_API_AUTH_STRING: secret or None}):
        served = application("127.0.0.1", 4200)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://127.0.0.1:4200") as client:
        return [await client.get(path) for path in paths]


@pytest.mark.parametrize("secret", ["", "podline:secret"])
def test_the_description_of_the_api_is_for_those_who_have_the_secret(secret: str) -> None:
    *described, of_api = asyncio.run(_answers(secret, *DESCRIPTIONS, "/api/openapi.json"))
    for answer in described:
        is_told = answer.is_success and any(word in answer.text.lower() for word in ("openapi", "swagger"))
        assert is_told is not bool(secret), answer.url
    assert of_api.status_code == (401 if secret else 200)
