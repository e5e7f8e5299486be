"""Retries downloads whose checksum does not match."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from podline.errors import DamagedTransferError

Answer = TypeVar("Answer")

_ATTEMPTS = 10


def with_transfer_retries(attempt: Callable[[], Answer]) -> Answer:
    """The answer of the first attempt that is not damaged.

    Args:
        attempt: asks for it, and raises :class:`DamagedTransferError` if it does not arrive as it should.

    Raises:
        DamagedTransferError: the last attempt's, with their number.
        Exception: anything else that an attempt raised.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return attempt()
        except DamagedTransferError:
            pass
    try:
        return attempt()
    except DamagedTransferError as error:
        raise DamagedTransferError(f"{error}, {_ATTEMPTS} times in a row") from None
