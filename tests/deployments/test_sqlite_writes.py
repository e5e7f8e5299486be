"""Transactions of Prefect's server on SQLite wait for each other; this fails if Prefect begins them otherwise."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from prefect.server.database.configurations import AioSqliteConfiguration
from sqlalchemy import event

from podline.deployments import sqlite_writes


@pytest.fixture
def _locks_at_begin() -> Iterator[None]:
    sqlite_writes.lock_at_begin()
    sqlite_writes.lock_at_begin()  # once, however often it is asked for
    yield
    event.remove(sa.Engine, "before_cursor_execute", sqlite_writes._immediate)


async def _read_then_write(file: Path) -> str:
    """Read and write in one transaction of Prefect's, while another connection tries to write in between."""
    configuration = AioSqliteConfiguration(connection_url=f"sqlite+aiosqlite:///{file}")
    engine = await configuration.engine()
    async with await configuration.session(engine) as session, configuration.begin_transaction(session):
        await session.execute(sa.text("SELECT * FROM runs"))
        try:
            with sqlite3.connect(file, timeout=0) as other:
                other.execute("INSERT INTO runs VALUES (1)")
        except sqlite3.OperationalError as error:
            refused = str(error)
        else:
            refused = ""
        await session.execute(sa.text("INSERT INTO runs VALUES (2)"))
    return refused


@pytest.mark.usefixtures("_locks_at_begin")
def test_a_transaction_that_has_read_can_still_write(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "prefect.db") as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE runs (number INTEGER)")
    # The other one has to wait: it, and not the transaction, is what meets the lock.
    assert "locked" in asyncio.run(_read_then_write(tmp_path / "prefect.db"))
    with sqlite3.connect(tmp_path / "prefect.db") as database:
        assert database.execute("SELECT number FROM runs").fetchall() == [(2,)]
