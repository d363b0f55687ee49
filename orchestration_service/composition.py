"""The composition root: puts the service together from its settings, and takes it apart again."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx
from fastapi import FastAPI

from context_client import ContextClient, RemoteContext, connect
from context_client.embedded.app import open_app
from context_client.embedded.settings import EmbeddedSettings
from orchestration_service.app import create_app
from orchestration_service.brokers.model import ModelBroker
from orchestration_service.carrying import Carrier
from orchestration_service.forking import Forks
from orchestration_service.keeper import Keeper, Pace, open_keeper, pace_of
from orchestration_service.model_access import GATEWAY_PATH, ModelAccess
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.operations import OperationStore, StatusBoard
from orchestration_service.pipeline import Pipeline
from orchestration_service.planning import SandboxLimits
from orchestration_service.prices import open_prices
from orchestration_service.remarks import ALONE, OWN_SANDBOXES, Remarks
from orchestration_service.routes.model_access import gateway_app
from orchestration_service.sandboxes import open_sandboxes
from orchestration_service.security import Doorkeeper
from orchestration_service.sessions import SessionSettings
from orchestration_service.settings import Settings
from orchestration_service.stores import context_account, open_store, opened
from orchestration_service.vitals import Vitals
from orchestration_service.waiting import WaitingRoom

CONTEXT_PATH = "/context"
"""Where the embedded Context API is served beside the service, as the platform's ingress does."""


@dataclass(frozen=True)
class Service:
    """A service that is put together and ready to serve."""

    app: FastAPI
    """The ASGI application."""

    sandbox: str
    """What sandboxes are made of here."""

    doorkeeper: Doorkeeper
    """Who checks the key of each call."""

    vitals: Vitals
    """How it is."""

    remarks: Remarks
    """What it says of itself."""


@asynccontextmanager
async def open_service(
    settings: Settings, *, routes: ModelRoutes | None = None, limits: SandboxLimits | None = None, pace: Pace | None = None
) -> AsyncIterator[Service]:
    """Put the service together: store, board, Context API (remote or embedded), model broker, pipeline, application.

    Args:
        settings: What the operator set.
        routes: Replaces the model routes of the settings.
        limits: Replaces what a turn is granted here.
        pace: Replaces how often turns are renewed, looked for and asked again.

    Raises:
        SandboxUnavailable: Embedded, and no sandbox can be made on this machine; the message says what to do.
        SettingsError: A chosen store needs packages that are not installed, or the table of prices cannot be read.
        StoreError: The data folder or an account cannot be used.
    """
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    pace = pace or pace_of(settings.lease_seconds)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(settings))
        board = await stack.enter_async_context(_board(settings, store))
        waiting = WaitingRoom()
        access = ModelAccess(instance_id=settings.instance_id, url=settings.model_access_url, key=settings.model_access_secret)
        context, context_app, sandbox = await _open_context(settings, stack, waiting)
        pipeline = Pipeline(
            context=context,
            store=store,
            board=board,
            broker=await stack.enter_async_context(ModelBroker()),
            routes=routes or ModelRoutes(default_key=settings.anthropic_api_key, base_url=settings.anthropic_base_url),
            session=SessionSettings(language=settings.session_language),
            limits=limits or SandboxLimits(minimum_wall=settings.minimum_wall),
            prices=await open_prices(settings.price_table),
            describe_sandbox=lambda: sandbox,
            patience_seconds=pace.patience,
            waiting=waiting,
            access=access,
        )
        keeper = await stack.enter_async_context(
            open_keeper(
                store=store,
                board=board,
                pipeline=pipeline,
                instance_id=settings.instance_id,
                pace=pace,
                kept=timedelta(days=settings.operations_kept_days),
            )
        )
        carrier = Carrier(context, SessionSettings(language=settings.session_language))
        service = _service(settings, store=store, board=board, keeper=keeper, carrier=carrier, sandbox=sandbox)
        _mount(service.app, access, context_app)
        yield service


def _service(settings: Settings, *, store: OperationStore, board: StatusBoard, keeper: Keeper, carrier: Carrier, sandbox: str) -> Service:
    doorkeeper, remarks = Doorkeeper(instance_id=settings.instance_id, api_key=settings.api_key), _remarks(settings)
    app = create_app(
        settings=settings,
        doorkeeper=doorkeeper,
        operations=store,
        board=board,
        start_turn=keeper.start,
        forks=Forks(store, carrier),
        remarks=remarks,
    )
    return Service(app, sandbox, doorkeeper, Vitals(store, load=lambda: keeper.load, instance_id=settings.instance_id), remarks)


def _remarks(settings: Settings) -> Remarks:
    remarks = Remarks()
    if settings.cosmos_endpoint is None:
        remarks.say("turns", ALONE)
    if settings.is_embedded:
        remarks.say("sandboxes", OWN_SANDBOXES)
    return remarks


def _board(settings: Settings, store: OperationStore) -> StatusBoard:
    return StatusBoard(store, instance_id=settings.instance_id, finished_kept=settings.finished_operations_kept)


def _mount(app: FastAPI, access: ModelAccess, context_app: FastAPI | None) -> None:
    if access.is_offered:
        app.mount(GATEWAY_PATH, gateway_app(access))
    if context_app is not None:
        app.mount(CONTEXT_PATH, context_app)


async def _open_context(settings: Settings, stack: AsyncExitStack, waiting: WaitingRoom) -> tuple[ContextClient, FastAPI | None, str]:
    if settings.context_url is not None and settings.context_api_key is not None:
        remote = RemoteContext(url=settings.context_url, api_key=settings.context_api_key, instance_id=settings.instance_id)
        return await stack.enter_async_context(connect(remote)), None, "the platform's code session"
    folder = Path(settings.data_dir) / "context"
    embedded = EmbeddedSettings(
        folder=folder,
        azure=context_account(settings),
        instance_id=settings.instance_id,
        api_key=settings.api_key,
        largest_sandbox=settings.largest_sandbox,
    )
    sandboxes = await stack.enter_async_context(open_sandboxes(settings, waiting))
    app = await opened(stack, open_app(embedded, providers={SessionSettings().endpoint_provider: sandboxes.provider}))
    client = ContextClient(
        base_url="http://context.embedded",
        api_key=settings.api_key.get_secret_value(),
        instance_id=settings.instance_id,
        transport=httpx.ASGITransport(app=app, raise_app_exceptions=False),
    )
    return await stack.enter_async_context(client), app, sandboxes.in_words
