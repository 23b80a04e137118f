"""The failures of transfers whose other half has not begun: that half gets the error when it begins.

Their number is bounded, and no client can use it up. The first bytes of a transfer's name identify its client, which
chooses them at random. When the store is full, the oldest
failure of a client with more than its share is forgotten; without such a client, the oldest of all. So a client that
fails many transfers loses only its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from ...interpreter.errors import TensordError

MAX_FAILURES: Final = 1 << 16
CLIENT_SHARES: Final = 16  # a client's share is one part of this many
CLIENT_BYTES: Final = 8  # bytes of a transfer's name that belong to its client

K = TypeVar("K", bound=Hashable)


class ByClient(Generic[K]):
    """Keys of transfers in the order of their arrival, and in the same order for each client."""

    def __init__(self) -> None:
        self._transfers: OrderedDict[K, bytes] = OrderedDict()
        self._of: dict[bytes, OrderedDict[K, None]] = {}
        self._largest = b""  # the client last seen with more than its share

    def add(self, key: K, transfer: bytes) -> None:
        client = transfer[:CLIENT_BYTES]
        self._transfers[key] = transfer
        own = self._of.setdefault(client, OrderedDict())
        own[key] = None
        if len(own) > len(self._of.get(self._largest, ())):
            self._largest = client

    def remove(self, key: K) -> None:
        client = self._transfers.pop(key)[:CLIENT_BYTES]
        own = self._of[client]
        del own[key]
        if not own:
            del self._of[client]

    def to_forget(self, most: int) -> K | None:
        """The transfer to forget, if more are kept than allowed."""
        if len(self._transfers) <= most:
            return None
        largest = self._of.get(self._largest, ())
        return next(iter(largest if len(largest) > most // CLIENT_SHARES else self._transfers))


class TransferFailures:
    """Errors by transfer."""

    def __init__(self) -> None:
        self._errors: dict[bytes, TensordError] = {}
        self._by_client: ByClient[bytes] = ByClient()

    def keep(self, transfer: bytes, error: TensordError) -> None:
        if transfer not in self._errors:
            self._by_client.add(transfer, transfer)
        self._errors[transfer] = error
        oldest = self._by_client.to_forget(MAX_FAILURES)
        if oldest is not None:
            self.pop(oldest)

    def pop(self, transfer: bytes) -> TensordError | None:
        """Remove and return the error; None if there is none."""
        error = self._errors.pop(transfer, None)
        if error is not None:
            self._by_client.remove(transfer)
        return error

    def __contains__(self, transfer: bytes) -> bool:
        return transfer in self._errors

    def __len__(self) -> int:
        return len(self._errors)
