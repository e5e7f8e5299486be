"""Lets concurrent writes to Prefect's SQLite database wait for each other, where SQLite would refuse all but one.

Prefect begins a transaction that is to write with ``BEGIN DEFERRED``. Such a transaction takes the write lock at its
first write. If it has read before, and another one has written meanwhile, SQLite refuses it at once ("database is
locked"), whatever the busy timeout: the answer is 503, and what the UI submitted is lost. ``BEGIN IMMEDIATE`` takes the
lock at the beginning, for which a transaction waits, up to the 60 s that Prefect sets. Prefect has no setting for it.

Reads outside of a transaction are not affected, nor is PostgreSQL.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, event

_DEFERRED, _IMMEDIATE = "BEGIN DEFERRED", "BEGIN IMMEDIATE"


def lock_at_begin() -> None:
    """Make transactions of this process on SQLite take the write lock when they begin, from now on."""
    if not event.contains(Engine, "before_cursor_execute", _immediate):
        event.listen(Engine, "before_cursor_execute", _immediate, retval=True)


def _immediate(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
    return (_IMMEDIATE if statement == _DEFERRED else statement), parameters
