"""What tokens cost: the shipped table, the arithmetic, and tables of the operator's own."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestration_service.errors import SettingsError
from orchestration_service.prices import ModelPrice, PriceTable, money, open_prices, read_prices, shipped_prices
from workflow_schemas.usage import Usage

OWN: dict[str, Any] = {
    "currency": "EUR",
    "source": "our contract",
    "as_of": "2026-11-01",
    "models": [
        {"names": ["coder-*"], "provider": "foundry", "input": 1, "output": "2.5", "cache_write": "1.25", "cache_read": 0.1},
        {"names": ["*"], "input": "9", "output": "9", "cache_write": "9", "cache_read": "9"},
    ],
}


def price_of(name: str, provider: str = "anthropic", table: PriceTable | None = None) -> ModelPrice:
    found = (table or shipped_prices()).find([name], provider)
    assert found is not None
    return found


def test_the_shipped_table_says_where_it_comes_from() -> None:
    table = shipped_prices()
    assert (table.currency, table.source, table.note != "") == ("USD", "https://platform.claude.com/docs/en/about-claude/pricing", True)
    assert table.in_words.endswith(", 2026-10-24")


def test_every_shipped_price_keeps_the_providers_proportions() -> None:
    """A five-minute write costs 1.25 of the input, an answer five times as much; a digit typed wrongly would show."""
    for entry in shipped_prices().models:
        for price in filter(None, (entry, entry.long_prompt)):
            assert (price.cache_write, price.output) == (price.input * Decimal("1.25"), price.input * 5), entry.names
            assert price.cache_read / price.input in {Decimal(share) for share in ("0.1", "0.05", "0.025")}, entry.names


@pytest.mark.parametrize(
    ("name", "input_price"),
    [
        ("claude-sonnet-4-5", "3"),
        ("claude-sonnet-4-5-20250929", "3"),
        ("claude-sonnet-4-5@20250929", "3"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "3"),
        ("arn:aws:bedrock:eu-west-1:123456789012:inference-profile/global.anthropic.claude-opus-4-6-v1", "5"),
        ("claude-opus-4-20250514", "15"),
        ("Claude-Opus-5", "5"),
        ("claude-opus-5-5[1m]", "4"),
        ("claude-3-5-haiku-latest", "0.80"),
    ],
)
def test_a_model_is_known_by_every_providers_name_for_it(name: str, input_price: str) -> None:
    assert price_of(name).input == Decimal(input_price)


@pytest.mark.parametrize("name", ["our-coder", "claude-opus-9", "claude-opus-4-55", "gpt-6", ""])
def test_what_is_not_in_the_table_has_no_price(name: str) -> None:
    assert shipped_prices().find([name], "anthropic") is None


def test_a_usage_costs_what_a_person_would_reckon() -> None:
    """1 000 in at $3, 100 000 read at $0.30, 2 000 written at $3.75, 500 out at $15, each per million."""
    usage = Usage(model_calls=1, input_tokens=1_000, cache_read_tokens=100_000, cache_write_tokens=2_000, output_tokens=500)
    assert money(price_of("claude-sonnet-4-5").of(usage)) == "0.048000"


@pytest.mark.parametrize(("read", "calls", "cost"), [(99_999, 1, "0.001500"), (100_000, 1, "0.007500"), (199_998, 2, "0.002500")])
def test_a_long_prompt_has_its_own_price_for_each_call(read: int, calls: int, cost: str) -> None:
    """A request of 100 001 tokens, caches included, pays five times as much for all of it."""
    usage = Usage(model_calls=calls, input_tokens=calls, cache_read_tokens=read, output_tokens=1_000)
    assert money(price_of("claude-haiku-5-5").of(usage)) == cost


@pytest.mark.anyio
async def test_an_operators_table_replaces_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "prices.json").write_text(json.dumps(OWN), encoding="utf-8")
    for setting in (str(tmp_path / "prices.json"), json.dumps(OWN, indent=2)):
        table = await open_prices(setting)
        assert (table.currency, table.in_words) == ("EUR", "our contract, 2026-11-01")
        assert price_of("coder-2", "foundry", table).input == 1
        assert price_of("coder-2", "bedrock", table).input == 9, "another provider has other prices"
    assert (await open_prices(None)).currency == "USD"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"models": [{**OWN["models"][0], "input": "-1"}]}, "models.0.input: .*greater than or equal to 0"),
        ({"models": [{**OWN["models"][0], "output": "NaN"}]}, "models.0.output: .*finite"),
        ({"models": [{**OWN["models"][0], "batch": "1"}]}, "models.0.batch: Extra inputs"),
        ({"models": [{"names": ["m"], "input": "1"}]}, "models.0.output: Field required"),
        ({"currency": "dollars"}, "currency: String should match"),
        ({"as_of": "lately"}, "as_of: "),
    ],
    ids=["negative", "no number", "unknown price", "price missing", "no currency", "no day"],
)
def test_a_bad_table_is_refused_with_what_is_wrong(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=f"(?s)the file 'mine' is no table of prices .*{words}") as raised:
        read_prices(json.dumps(OWN | change), "the file 'mine'")
    assert raised.value.names == ("CLAUDE_CODE_PRICE_TABLE",)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("setting", "words"),
    [("missing.json", "cannot be read: No such file"), (".", "cannot be read: Is a directory"), ("{", "is no table of prices")],
)
async def test_a_table_that_is_not_there_stops_the_start(tmp_path: Path, setting: str, words: str) -> None:
    with pytest.raises(SettingsError, match=f"CLAUDE_CODE_PRICE_TABLE.*{words}"):
        await open_prices(setting if setting == "{" else str(tmp_path / setting))
