"""The words that the service and the runner share: models without I/O, and their JSON Schema.

What is offered here is what a third party needs to speak to either of them. How frames are packed (`workflow_schemas.mailbox`,
`workflow_schemas.delta`) and how a model's event stream is read (`workflow_schemas.model_stream`) are the business of both ends only.
Names are looked up when they are first used: importing one module must not cost the time of all, least of all in a sandbox.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workflow_schemas.errors import (
        DeltaError,
        FrameError,
        SchemaError,
    )
    from workflow_schemas.events import (
        ConfirmRequest,
        DeviceCode,
        Done,
        Event,
        Failed,
        ModelCalled,
        Progress,
        Text,
        ToolEnd,
        ToolStart,
        Warned,
        event_adapter,
    )
    from workflow_schemas.mailbox import (
        Exchange,
        Message,
        Reply,
    )
    from workflow_schemas.manifest import (
        EndReason,
        OutputFile,
        PatchFacts,
        RunManifest,
    )
    from workflow_schemas.plan import (
        InputFile,
        Limits,
        TurnPlan,
    )
    from workflow_schemas.platform import (
        CAPABILITY,
        WORKFLOW_TYPES,
        Agent,
        AgentTool,
        AIModel,
        AnalysisResult,
        AttachmentProperties,
        CompletionRequest,
        CompletionResponse,
        ContentArtifact,
        ContentItem,
        EndpointConfiguration,
        FileAnnotation,
        FileHistoryItem,
        HistoryArtifact,
        ImageItem,
        LongRunningOperation,
        MainModel,
        MessageHistoryItem,
        OperationStatus,
        Prompt,
        PromptRole,
        ResourceInvalid,
        ResourceMissing,
        ResourceProblem,
        ResourceReference,
        RoleMissing,
        ServiceStatusInfo,
        TextItem,
        UrlException,
        Workflow,
        failed_response,
        progress_response,
        resolve_main_model,
        resolve_prompt,
        result_id,
        to_wire,
        well_formed,
    )
    from workflow_schemas.properties import (
        SCHEMA_VERSION,
        TOOLS,
        EgressPolicy,
        WorkflowProperties,
    )
    from workflow_schemas.property_reading import (
        PropertyReading,
        read_properties,
    )
    from workflow_schemas.receipt import (
        Receipt,
        StepTime,
        StoredFile,
    )
    from workflow_schemas.usage import (
        Usage,
    )

__all__ = [
    "CAPABILITY",
    "SCHEMA_VERSION",
    "TOOLS",
    "WORKFLOW_TYPES",
    "AIModel",
    "Agent",
    "AgentTool",
    "AnalysisResult",
    "AttachmentProperties",
    "CompletionRequest",
    "CompletionResponse",
    "ConfirmRequest",
    "ContentArtifact",
    "ContentItem",
    "DeltaError",
    "DeviceCode",
    "Done",
    "EgressPolicy",
    "EndReason",
    "EndpointConfiguration",
    "Event",
    "Exchange",
    "Failed",
    "FileAnnotation",
    "FileHistoryItem",
    "FrameError",
    "HistoryArtifact",
    "ImageItem",
    "InputFile",
    "Limits",
    "LongRunningOperation",
    "MainModel",
    "Message",
    "MessageHistoryItem",
    "ModelCalled",
    "OperationStatus",
    "OutputFile",
    "PatchFacts",
    "Progress",
    "Prompt",
    "PromptRole",
    "PropertyReading",
    "Receipt",
    "Reply",
    "ResourceInvalid",
    "ResourceMissing",
    "ResourceProblem",
    "ResourceReference",
    "RoleMissing",
    "RunManifest",
    "SchemaError",
    "ServiceStatusInfo",
    "StepTime",
    "StoredFile",
    "Text",
    "TextItem",
    "ToolEnd",
    "ToolStart",
    "TurnPlan",
    "UrlException",
    "Usage",
    "Warned",
    "Workflow",
    "WorkflowProperties",
    "event_adapter",
    "failed_response",
    "progress_response",
    "read_properties",
    "resolve_main_model",
    "resolve_prompt",
    "result_id",
    "to_wire",
    "well_formed",
]

_MODULES = ("plan", "usage", "manifest", "receipt", "events", "properties", "property_reading", "errors", "mailbox", "platform")
"""Where the names are, the light ones first."""


def __getattr__(name: str) -> object:
    """Find a name of the façade in its module."""
    if name in __all__:
        for module in _MODULES:
            names: Mapping[str, object] = vars(importlib.import_module(f"{__name__}.{module}"))
            if name in names:
                return names[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List what the façade offers."""
    return sorted(__all__)
