"""Queues concurrent writes to Prefect's SQLite database, where SQLite would refuse all but one.

Prefect begins a writing transaction with ``BEGIN DEFERRED``, which takes the write lock at the first write. If the
transaction has read before, and another one has written meanwhile, SQLite refuses it at once ("database is locked"),
regardless of the busy timeout. The answer is 503, and the data from the UI is lost. ``BEGIN IMMEDIATE`` takes the lock
at the beginning; a transaction waits for it for up to 60 s, which Prefect sets. Prefect has no setting for it.

Reads outside of transactions and PostgreSQL are not affected.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, event

_DEFERRED, _IMMEDIATE = "BEGIN DEFERRED", "BEGIN IMMEDIATE"


def lock_at_begin() -> None:
    """Make all later SQLite transactions of this process take the write lock when they begin."""
    if not event.contains(Engine, "before_cursor_execute", _immediate):
        event.listen(Engine, "before_cursor_execute", _immediate, retval=True)


def _immediate(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
    return (_IMMEDIATE if statement == _DEFERRED else statement), parameters
