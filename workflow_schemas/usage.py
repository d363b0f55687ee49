"""Tokens and calls of a run."""

from pydantic import BaseModel, ConfigDict, Field


class Usage(BaseModel):
    """What was used, counted from the answers of the model."""

    model_config = ConfigDict(frozen=True)

    model_calls: int = Field(0, ge=0, description="Answered calls of the model.")
    input_tokens: int = Field(0, ge=0, description="Tokens of the requests that were read anew.")
    cache_read_tokens: int = Field(0, ge=0, description="Tokens of the requests that came from the prompt cache.")
    cache_write_tokens: int = Field(0, ge=0, description="Tokens of the requests that were written to the prompt cache.")
    output_tokens: int = Field(0, ge=0, description="Tokens of the answers.")

    @property
    def prompt_tokens(self) -> int:
        """All tokens of the requests, as the platform counts them."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        """All tokens, in and out."""
        return self.prompt_tokens + self.output_tokens

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum of both."""
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


class ModelUsage(BaseModel):
    """What one model of a turn used and cost."""

    model_config = ConfigDict(frozen=True)

    model: str = Field(description="Model name its endpoint was asked for.")
    role: str = Field("main_model", description="What it is for: `main_model`, `small_model`, `fallback_model`, `fallback_model_2` …")
    endpoint: str = Field("", description="Name of its endpoint.")
    usage: Usage = Field(default_factory=Usage, description="What was used, what was lost included.")
    lost_tokens: int = Field(0, ge=0, description="Tokens of answers that broke off: they were paid for and brought nothing.")
    cost: str | None = Field(None, pattern=r"^\d+(\.\d+)?$", description="Price as a decimal number; absent when it is not known.")
