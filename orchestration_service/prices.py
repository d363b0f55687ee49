"""What model calls cost: a table of prices that an operator can replace, and the arithmetic. Pure but for `open_prices`.

A model the table does not know has an unknown cost, never none. Money is :class:`~decimal.Decimal` here and text in what is stored.
"""

import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestration_service.errors import SettingsError
from workflow_schemas.usage import Usage

VARIABLE = "CLAUDE_CODE_PRICE_TABLE"
_MILLION = Decimal(1_000_000)
_SMALLEST = Decimal("0.000001")
_LONGEST = 1024 * 1024


class Price(BaseModel):
    """Prices of one million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Decimal = Field(ge=0, allow_inf_nan=False, description="Tokens of the request that were read anew.")
    output: Decimal = Field(ge=0, allow_inf_nan=False, description="Tokens of the answer, thinking included.")
    cache_write: Decimal = Field(ge=0, allow_inf_nan=False, description="Tokens of the request written to the cache for five minutes.")
    cache_read: Decimal = Field(ge=0, allow_inf_nan=False, description="Tokens of the request that came from the cache.")

    def of(self, usage: Usage) -> Decimal:
        """Return what this usage costs, exactly."""
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_write_tokens * self.cache_write
            + usage.cache_read_tokens * self.cache_read
        ) / _MILLION


class LongPromptPrice(Price):
    """Prices of a request with a long prompt; they hold for all tokens of the request and its answer."""

    above_tokens: int = Field(ge=1, description="Longest prompt, caches included, that still has the ordinary prices.")


class ModelPrice(Price):
    """Prices of some models."""

    names: tuple[str, ...] = Field(
        min_length=1, description="Names of the models, with `*` and `?` if wanted; held against the deployment name and its short form."
    )
    provider: str = Field("", description="The only provider these prices hold for, such as `bedrock`; empty for any.")
    long_prompt: LongPromptPrice | None = Field(None, description="Other prices for requests with long prompts.")

    def of(self, usage: Usage) -> Decimal:
        """Return what a usage costs; that of several calls counts as calls of equal size."""
        longest = self.long_prompt
        if longest is not None and usage.prompt_tokens > longest.above_tokens * max(1, usage.model_calls):
            return longest.of(usage)
        return super().of(usage)


class PriceTable(BaseModel):
    """All prices in force."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    currency: str = Field(pattern=r"^[A-Z]{3}$", description="Currency of all prices, such as USD.")
    source: str = Field(min_length=1, max_length=300, description="Where the prices come from.")
    as_of: date = Field(description="The day on which they were the source's.")
    note: str = Field("", max_length=1000, description="What else to know about them.")
    models: tuple[ModelPrice, ...] = Field(description="The prices; the first entry that fits a model counts.")

    @property
    def in_words(self) -> str:
        """Where the prices come from, and of which day they are."""
        return f"{self.source}, {self.as_of.isoformat()}"

    def find(self, names: Sequence[str], provider: str) -> ModelPrice | None:
        """Return the prices of a model, None when they are not known.

        Args:
            names: What the model is called, the most telling name first: its deployment, then what its answers say.
            provider: Who serves it.
        """
        for name in names:
            forms = {name.casefold(), short_name(name)}
            for entry in self.models:
                patterns = [pattern.casefold().replace("[", "[[]") for pattern in entry.names]  # only * and ? are special
                if entry.provider in ("", provider) and any(fnmatchcase(form, pattern) for form in forms for pattern in patterns):
                    return entry
        return None


def short_name(name: str) -> str:
    """Return a model's name without what providers put around it: region, vendor, date, version, variant.

    `us.anthropic.claude-sonnet-4-5-20250929-v1:0`, `claude-sonnet-4-5@20250929` and `claude-sonnet-4-5` are one model.
    """
    short = name.casefold().rpartition("/")[2]
    short = short.rpartition("anthropic.")[2].partition("[")[0].partition("@")[0]
    return re.sub(r"(-latest|-\d{8})?(-v\d+(:\d+)?)?$", "", short, count=1)


def money(amount: Decimal) -> str:
    """Return an amount as text, to a millionth."""
    return f"{amount.quantize(_SMALLEST):f}"


def read_prices(text: str | bytes, source: str) -> PriceTable:
    """Read a table.

    Args:
        text: JSON.
        source: Where it stands, for the message.

    Raises:
        SettingsError: It is no table; the message names each fault.
    """
    try:
        return PriceTable.model_validate_json(text)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        lines = "\n".join(f"  {'.'.join(map(str, fault['loc'])) or 'the text'}: {fault['msg']}" for fault in faults[:20])
        raise SettingsError(f"{source} is no table of prices (docs/models.md shows one):\n{lines}", (VARIABLE,)) from None


def shipped_prices() -> PriceTable:
    """Return the table that comes with the product. Blocking; meant for the start of a process."""
    return read_prices(files(__package__).joinpath("prices.json").read_bytes(), "the shipped file")


async def open_prices(setting: str | None) -> PriceTable:
    """Return the table in force.

    Args:
        setting: The operator's own table: a file's path, or the JSON itself; None for the shipped one.

    Raises:
        SettingsError: The file cannot be read, or holds no table.
    """
    return await anyio.to_thread.run_sync(_open, setting)


def _open(setting: str | None) -> PriceTable:
    if setting is None:
        return shipped_prices()
    if setting.lstrip().startswith("{"):
        return read_prices(setting, f"the value of {VARIABLE}")
    try:
        with Path(setting).open("rb") as file:
            text = file.read(_LONGEST + 1)
    except OSError as error:
        raise SettingsError(
            f"{VARIABLE} is {setting!r}, and that file cannot be read: {error.strerror or error}. Give the path of a JSON file, or the "
            "JSON itself; without the setting the shipped prices hold.",
            (VARIABLE,),
        ) from error
    if len(text) > _LONGEST:
        raise SettingsError(
            f"{VARIABLE} is {setting!r}, and that file is larger than {_LONGEST} bytes: no table of prices is.", (VARIABLE,)
        )
    return read_prices(text, f"the file {setting!r} ({VARIABLE})")
