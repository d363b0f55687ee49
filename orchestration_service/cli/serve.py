"""The service, until it is told to stop: with the embedded platform, or as one replica of a larger installation."""

from contextlib import AsyncExitStack
from functools import partial

import anyio

from orchestration_service.app import server_config
from orchestration_service.cli.hosting import quick_to_answer
from orchestration_service.cli.stopping import StoppingServer
from orchestration_service.composition import CONTEXT_PATH, Service, open_service
from orchestration_service.configuration import Configuration, open_configuration
from orchestration_service.errors import SettingsError
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.remarks import NO_DRAIN, UNKNOWN_SETTINGS
from orchestration_service.routes.probes import probe_app
from orchestration_service.scripted.endpoint import serve as serve_beside
from orchestration_service.settings import Settings

_INTERRUPTED = 130


async def serve(*, host: str | None, port: int | None, replica: bool = False) -> int:
    """Serve until Ctrl+C or SIGTERM; the turns it works on are then left to others, at once.

    Args:
        host: Address to listen on; None for that of the configuration.
        port: Port to listen on; None for that of the configuration.
        replica: Whether this is one of several: then nothing is made up, and sandboxes are elsewhere.

    Raises:
        SettingsError: A setting is wrong.
        SandboxUnavailable: No sandbox can be made on this machine.
    """
    async with AsyncExitStack() as stack:
        configuration = await stack.enter_async_context(open_configuration(replica=replica, host=host, port=port))
        settings, platform = configuration.settings, configuration.platform
        if replica:
            _check_replica(settings)
        keys = platform.model_key if platform else None
        routes = ModelRoutes(keys=keys, default_key=settings.anthropic_api_key, base_url=settings.anthropic_base_url)
        service = await stack.enter_async_context(open_service(settings, routes=routes))
        await _open_probes(service, settings, stack)
        _tell(configuration, service)
        if configuration.ignored:
            service.remarks.say("settings", UNKNOWN_SETTINGS)
        if replica and settings.drain_seconds == 0:
            service.remarks.say("end", NO_DRAIN)
        server = StoppingServer(server_config(service.app, settings), vitals=service.vitals, drain_seconds=settings.drain_seconds)
        async with anyio.create_task_group() as beside:
            if platform is not None:
                from orchestration_service.freshness import keep_fresh

                beside.start_soon(partial(keep_fresh, platform, service.doorkeeper, remarks=service.remarks))
            with quick_to_answer():
                await server.serve()
            beside.cancel_scope.cancel()
    return _INTERRUPTED if server.interrupted else 0


def _check_replica(settings: Settings) -> None:
    """Refuse what only an installation of its own can do."""
    if settings.is_embedded and settings.sandboxes == "local":
        raise SettingsError(
            "A replica makes no sandboxes of its own. Set CLAUDE_CODE_CONTEXT_URL and CLAUDE_CODE_CONTEXT_API_KEY to the platform's "
            "Context API (in App Configuration: FoundationaLLM:APIEndpoints:ContextAPI:Essentials), or CLAUDE_CODE_SANDBOXES to "
            "'session-pool'.",
            ("CLAUDE_CODE_CONTEXT_URL", "CLAUDE_CODE_SANDBOXES"),
        )


async def _open_probes(service: Service, settings: Settings, stack: AsyncExitStack) -> None:
    if settings.probe_port is None:
        return
    try:
        await stack.enter_async_context(serve_beside(probe_app(service.vitals), host=settings.host, port=settings.probe_port))
    except OSError as error:
        raise SettingsError(
            f"CLAUDE_CODE_PROBE_PORT is {settings.probe_port}, and this process cannot listen there ({error.strerror}). "
            "Choose another one.",
            ("CLAUDE_CODE_PROBE_PORT",),
        ) from error


def _tell(configuration: Configuration, service: Service) -> None:
    settings = configuration.settings
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
    if settings.anthropic_api_key is None and configuration.platform is None:
        print("No model key is set (ANTHROPIC_API_KEY): completions will say so.")
