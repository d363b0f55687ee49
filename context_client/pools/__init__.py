"""Azure Container Apps session pools: a provider of sandboxes, and (in `emulator`) a pool to develop against."""

from context_client.pools.errors import IdentifierRefused, PoolError, PoolFull, PoolMisfit, PoolRefused, PoolUnreachable
from context_client.pools.line import Observer, Waiting
from context_client.pools.metrics import Measured, PoolFigures
from context_client.pools.provider import DynamicSessions
from context_client.pools.settings import DynamicSessionsSettings, SessionPool
from context_client.pools.tokens import EntraTokens, FixedToken, PoolToken, TokenSource

__all__ = [
    "DynamicSessions",
    "DynamicSessionsSettings",
    "EntraTokens",
    "FixedToken",
    "IdentifierRefused",
    "Measured",
    "Observer",
    "PoolError",
    "PoolFigures",
    "PoolFull",
    "PoolMisfit",
    "PoolRefused",
    "PoolToken",
    "PoolUnreachable",
    "SessionPool",
    "TokenSource",
    "Waiting",
]
