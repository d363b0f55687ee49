"""The one way to a Context API: remote or embedded, the caller cannot tell and need not know.

The embedded server is an app behind the client's transport, not a second client. It is imported only when chosen, so
that a replica on the platform carries neither its database nor its web framework.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import httpx
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from context_client.client import DEFAULT_TIMEOUT_SECONDS, ContextClient
from context_client.embedded.settings import EmbeddedSettings

if TYPE_CHECKING:
    from context_client.embedded.provider import SandboxProvider


class RemoteContext(BaseModel):
    """A Context API at an address."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["remote"] = Field(default="remote", description="Chooses this kind.")
    url: str = Field(description="Base URL, with the ingress path if there is one (`https://host/context/`).")
    api_key: SecretStr = Field(description="The server's API key.")
    instance_id: str = Field(description="The platform instance.")
    api_key_header: str = Field(default="X-API-KEY", description="Header that carries the key.")
    api_key_prefix: str | None = Field(default=None, description="Put in front of the key, blank included if wanted.")
    timeout_seconds: float = Field(default=DEFAULT_TIMEOUT_SECONDS, gt=0, description="Silence to bear per call.")


class EmbeddedContext(BaseModel):
    """A Context API inside this process."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["embedded"] = Field(default="embedded", description="Chooses this kind.")
    server: EmbeddedSettings = Field(description="The embedded server's own settings.")


ContextSettings = Annotated[RemoteContext | EmbeddedContext, Field(discriminator="kind")]
"""Either kind, told apart by `kind`."""


@asynccontextmanager
async def connect(
    settings: RemoteContext | EmbeddedContext, *, providers: "Mapping[str, SandboxProvider] | None" = None
) -> AsyncIterator[ContextClient]:
    """Open a client, and for the embedded kind the server behind it; both end with the block.

    Args:
        settings: Which server.
        providers: Embedded only: where sandboxes come from, by wire name. Their owner opens and closes them.
    """
    async with AsyncExitStack() as stack:
        if isinstance(settings, RemoteContext):
            client = ContextClient(
                base_url=settings.url,
                api_key=settings.api_key.get_secret_value(),
                instance_id=settings.instance_id,
                api_key_header=settings.api_key_header,
                api_key_prefix=settings.api_key_prefix,
                timeout=settings.timeout_seconds,
            )
        else:
            from context_client.embedded.app import open_app

            app = await stack.enter_async_context(open_app(settings.server, providers=providers or {}))
            client = ContextClient(
                base_url="http://context.embedded",
                api_key=settings.server.api_key.get_secret_value(),
                instance_id=settings.server.instance_id,
                api_key_header=settings.server.api_key_header,
                # An error inside the app must arrive as the answer a socket would carry.
                transport=httpx.ASGITransport(app=app, raise_app_exceptions=False),
            )
        yield await stack.enter_async_context(client)
