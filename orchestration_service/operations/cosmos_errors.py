"""Where Azure's complaints become ours, each with what to do about it."""

from __future__ import annotations

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.cosmos.exceptions import CosmosClientTimeoutError

from orchestration_service.errors import StoreBusy, StoreError, StoreFull, StoreUnusable

TRANSIENT = frozenset({408, 410, 429, 449, 500, 502, 503, 504})
"""Answers that say nothing about the request itself: it may be repeated."""
STORAGE_FULL = 1014
"""Sub-status of a 403 for a partition that has reached its size limit."""


def is_transient(error: AzureError) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, HttpResponseError):
        return error.status_code in TRANSIENT
    if isinstance(error, ClientAuthenticationError):
        return False
    return isinstance(error, ServiceRequestError | ServiceResponseError | CosmosClientTimeoutError)


def translate(error: AzureError, where: str) -> StoreError:
    """Return our error for one of Azure's; ``where`` names the account and container."""
    reason = _first_line(error)
    if is_transient(error):
        return StoreBusy(
            f"The operation store {where} is throttled or does not answer ({reason}). Nothing stored so far is lost; try again "
            "in a moment. If it lasts, check the account's health, its network rules and its request units."
        )
    status = getattr(error, "status_code", None)
    if status in {403, 507} and getattr(error, "sub_status", None) == STORAGE_FULL:
        return StoreFull(f"No space is left in the operation store {where}. Shorten how long operations are kept, or prune.")
    if status in {401, 403} or isinstance(error, ClientAuthenticationError):
        return StoreUnusable(
            f"The operation store {where} refuses us ({reason}). Give this process's identity the roles 'Cosmos DB Built-in Data "
            "Contributor' and 'Storage Blob Data Contributor', or set the accounts' keys."
        )
    if status == 404:
        return StoreUnusable(f"The operation store {where} is not there ({reason}). Make it with the deployment templates.")
    return StoreUnusable(f"The operation store {where} failed: {reason}.")


def _first_line(error: AzureError) -> str:
    lines = str(error.message or error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
