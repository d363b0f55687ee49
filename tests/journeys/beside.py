"""A stage whose Context API stands beside the service, with sandboxes that the test has made."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import SecretStr
from starlette.applications import Starlette

from context_client import ContextClient
from context_client.embedded.app import open_app
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME, SandboxProvider
from context_client.embedded.settings import EmbeddedSettings
from orchestration_service.cli.client import Caller, open_caller
from orchestration_service.cli.hosting import Platform
from orchestration_service.composition import open_service
from orchestration_service.keeper import Pace
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.scripted.endpoint import serve
from orchestration_service.settings import load_settings
from tests.stage import MODEL_KEY, Stage

INSTANCE, KEY, UPN = "11111111-2222-3333-4444-555555555555", "a-key-for-the-test", "ann@example.com"


@asynccontextmanager
async def open_stage_beside(folder: Path, sandboxes: SandboxProvider, *, pace: Pace | None = None) -> AsyncIterator[Stage]:
    """Start Context API and service, and a place for models.

    Args:
        folder: Where both keep their data.
        sandboxes: Where the Context API finds sandboxes.
        pace: How patient the service is.
    """
    embedded = EmbeddedSettings(folder=folder / "context", instance_id=INSTANCE, api_key=SecretStr(KEY))
    models = Starlette()
    async with (
        serve(models) as endpoint,
        open_app(embedded, providers={DEFAULT_PROVIDER_NAME: sandboxes}) as app,
        serve(app) as context,
        ContextClient(base_url=context.base_url, api_key=KEY, instance_id=INSTANCE) as client,
    ):
        settings = load_settings(instance_id=INSTANCE, api_key=KEY, data_dir=folder, context_url=context.base_url, context_api_key=KEY)
        routes = ModelRoutes(default_key=SecretStr(MODEL_KEY))
        async with open_service(settings, routes=routes, pace=pace) as service, serve(service.app) as served:
            platform = Platform(served.base_url, INSTANCE, KEY, service.sandbox)
            async with open_caller(platform, UPN) as caller:
                yield Stage(platform, Caller(caller.http, client, caller.identity, INSTANCE), endpoint.base_url, models)
