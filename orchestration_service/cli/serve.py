"""The embedded platform, until it is told to stop."""

from contextlib import AsyncExitStack

import anyio
import uvicorn

from orchestration_service.app import server_config
from orchestration_service.cli.hosting import quick_to_answer
from orchestration_service.composition import CONTEXT_PATH, open_service
from orchestration_service.configuration import open_configuration
from orchestration_service.model_routes import ModelRoutes


async def serve(*, host: str | None, port: int | None) -> int:
    """Serve until Ctrl+C or SIGTERM.

    Args:
        host: Address to listen on; None for that of the configuration.
        port: Port to listen on; None for that of the configuration.

    Raises:
        SettingsError: A setting is wrong.
        SandboxUnavailable: No sandbox can be made on this machine.
    """
    async with AsyncExitStack() as stack:
        configuration = await stack.enter_async_context(open_configuration(host=host, port=port))
        settings, platform = configuration.settings, configuration.platform
        keys = platform.model_key if platform else None
        routes = ModelRoutes(keys=keys, default_key=settings.anthropic_api_key, base_url=settings.anthropic_base_url)
        service = await stack.enter_async_context(open_service(settings, routes=routes))
        for key in configuration.ignored:
            print(f"Without effect: App Configuration has {key}, which is no setting of this version.")
        address = f"http://{settings.host}:{settings.port}"
        print(f"ClaudeCode orchestration service: {address}/instances/{settings.instance_id}/")
        if settings.is_embedded:
            print(f"Context API (embedded):          {address}{CONTEXT_PATH}/")
        else:
            print(f"Context API:                     {settings.context_url}")
        source = next(origin.source for origin in configuration.origins if origin.variable == "CLAUDE_CODE_API_KEY")
        print(f"Key (X-API-KEY):                 {source}")
        print(f"Sandbox:                         {service.sandbox}")
        if settings.anthropic_api_key is None and platform is None:
            print("No model key is set (ANTHROPIC_API_KEY): completions will say so.")
        async with anyio.create_task_group() as beside:
            if platform is not None:
                from orchestration_service.freshness import keep_fresh

                beside.start_soon(keep_fresh, platform, service.doorkeeper)
            with quick_to_answer():
                await uvicorn.Server(server_config(service.app, settings)).serve()
            beside.cancel_scope.cancel()
    return 0
