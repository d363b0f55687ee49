"""The documented fields of the platform's resources, apart from agents (contract: portals and deployment §1.6).

These models are for writing: strict, because a field the platform does not know is dropped there in silence, and a wrong kind stops every
listing of its provider. What the service reads of a request is read forgivingly elsewhere (`workflow_schemas.platform`).
"""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from deployment_templates.values import ObjectId, PlatformObject, ResourceName, WorkflowType

SERVICE_ENDPOINT = "ClaudeCode"
"""The one name an agent's workflow host and the endpoint must share."""


class Resource(PlatformObject):
    """What every resource has. Time stamps and authors are the platform's business; only seeded files carry them."""

    type: str
    """The discriminator; the platform cannot read a resource that does not begin with it."""
    name: ResourceName
    """The resource's name, equal to the last part of its path."""
    object_id: ObjectId | None = None
    """The resource's address within the platform."""
    display_name: str | None = None
    """The name people see."""
    description: str | None = None
    """What the resource is for."""
    cost_center: str | None = None
    """Whom its use is charged to."""
    properties: dict[str, str] | None = None
    """Free settings, texts only."""
    inheritable_authorizable_actions: tuple[str, ...] | None = None
    """What a reader of this resource may do with the resources it refers to."""
    created_on: str | None = None
    """When it was made."""
    updated_on: str | None = None
    """When it was last changed."""
    created_by: str | None = None
    """Who made it."""
    updated_by: str | None = None
    """Who last changed it."""
    deleted: bool = False
    """Whether it counts as deleted."""
    expiration_date: str | None = None
    """When it stops being offered."""

    @model_validator(mode="after")
    def _is_where_its_name_says(self) -> Self:
        if self.object_id is not None and self.object_id.rpartition("/")[2] != self.name:
            raise ValueError(f"the object id {self.object_id!r} does not end with the name {self.name!r}")
        return self


class Workflow(Resource):
    """A workflow as the Management Portal lists it; the portal copies `type` and `properties` into agents that choose it."""

    type: WorkflowType
    """Becomes the workflow type of every agent saved with it."""


class Tool(Resource):
    """A tool as the Management Portal lists it."""

    type: Literal["tool"]
    """Always `tool`."""
    category: Literal["Generic", "Knowledge Search", "Code Interpreter", "Image Generation"] = "Generic"
    """The platform's grouping; agents with tools of the category `Knowledge Search` cannot be saved."""


class Prompt(Resource):
    """A prompt of one or two parts."""

    type: Literal["multipart"]
    """Always `multipart`."""
    category: Literal["Agent", "Workflow", "Tool", "DataPipeline"] = "Workflow"
    """What it is used by."""
    prefix: str | None = None
    """The prompt's text."""
    suffix: str | None = None
    """A second part, which workflows ignore."""


class AIModel(Resource):
    """A model behind an endpoint."""

    type: Literal["completion", "embedding", "image-generation", "realtime-speech"]
    """What the model does; `completion` for Claude."""
    endpoint_object_id: ObjectId
    """The endpoint that serves it."""
    version: str | None = None
    """The model's version, for people."""
    deployment_name: str | None = None
    """The model's name at the provider."""
    model_parameters: dict[str, Any] = Field(default_factory=dict)
    """Sampling settings. Never null: the platform writes into it."""


class UrlException(PlatformObject):
    """Another address of an endpoint for one user."""

    user_principal_name: str
    """Whom it is for."""
    url: str
    """The address."""
    enabled: bool
    """Whether it counts."""


class AuthenticationParameters(PlatformObject):
    """How an endpoint is opened: names of configuration keys and headers, never a secret."""

    api_key_configuration_name: str | None = None
    """Configuration key that holds the API key."""
    api_key_header_name: str | None = None
    """Header the key is sent in."""
    api_key_prefix: str | None = None
    """Word before the key. The platform's own clients do not agree about the space after it: better left out."""
    scope: str | None = None
    """What an identity's token is for; for Bedrock a configuration key that holds it."""
    role_arn: str | None = None
    """Configuration key that holds the AWS role an identity takes on."""
    access_key: str | None = None
    """Configuration key that holds an AWS access key."""
    secret_key: str | None = None
    """Configuration key that holds the secret of that AWS access key."""
    service_account_credentials: str | None = None
    """Configuration key that holds a Google service account as JSON."""


class Endpoint(Resource):
    """An API endpoint configuration."""

    type: Literal["api-endpoint"]
    """Always `api-endpoint`."""
    category: Literal[
        "Orchestration",
        "ExternalOrchestration",
        "LLM",
        "Gatekeeper",
        "AzureAIDirect",
        "AzureOpenAIDirect",
        "FileStoreConnector",
        "General",
    ]
    """What is served there."""
    subcategory: Literal["OneDriveWorkSchool", "Indexing", "AIModel"] | None = None
    """Finer grouping; none for orchestrators."""
    authentication_type: Literal["Unknown", "AzureIdentity", "APIKey", "ConnectionString", "AccountKey"]
    """How the endpoint is opened."""
    authentication_parameters: AuthenticationParameters = Field(default_factory=AuthenticationParameters)
    """Where the key is, and how it is sent."""
    url: str = Field(pattern=r"^https?://[^/?#@\s]+(?:/[^?#\s]*)?$")
    """The address."""
    status_endpoint: str | None = None
    """Path of its status."""
    url_exceptions: tuple[UrlException, ...] = ()
    """Other addresses for single users."""
    timeout_seconds: int = Field(gt=0)
    """How long one call may take."""
    retry_strategy_name: Literal["ExponentialBackoff"]
    """Wanted by the platform, and read by nobody there."""
    provider: str | None = None
    """Whose API it is."""
    api_version: str | None = None
    """The version of that API."""
    operation_type: Literal["chat", "completions"] | None = None
    """What is asked of it."""

    @model_validator(mode="after")
    def _can_be_found_and_called(self) -> Self:
        """Refuse what the platform would leave out in silence (contract: orchestration §1.2, traps 16, 17 and 27)."""
        if self.category != "ExternalOrchestration":
            return self
        key = self.authentication_parameters.api_key_configuration_name or ""
        if self.authentication_type != "APIKey" or not key.startswith("FoundationaLLM:APIEndpoints:"):
            raise ValueError("an external orchestrator is only found with an APIKey whose key begins with 'FoundationaLLM:APIEndpoints:'")
        if self.url.count("/") > 2:
            raise ValueError(f"the address {self.url!r} has a path or a final slash, which status calls would lose: give scheme and host")
        if self.name in ("LangChain", "SemanticKernel"):
            raise ValueError(f"{self.name!r} is the name of an orchestrator of the platform itself")
        return self
