"""Usage and cost per model, in the words of an answer and in the texts of an artifact. Pure."""

import json
from decimal import Decimal

from workflow_schemas.receipt import Receipt
from workflow_schemas.usage import ModelUsage


def cost_in_words(receipt: Receipt) -> str:
    """Return what a turn cost for the last line of its answer; nothing if no model was called."""
    if not receipt.models:
        return ""
    if receipt.cost is not None:
        return _amount(receipt.cost, receipt.currency)
    unknown = ", ".join(dict.fromkeys(repr(model.model) for model in receipt.models if model.cost is None))
    return f"cost unknown, because there is no price of {unknown}"


def models_in_words(receipt: Receipt) -> str:
    """Return what each model used, where there is more to tell than the sum."""
    if len(receipt.models) < 2 and not any(model.lost_tokens for model in receipt.models):
        return ""
    return "; ".join(_model_in_words(model, receipt.currency) for model in receipt.models)


def cost_metadata(receipt: Receipt) -> dict[str, str]:
    """Return usage and cost as an artifact carries them: the platform takes texts only."""
    models = [model.model_dump(mode="json", exclude_defaults=True) for model in receipt.models]
    return {
        "cost": "unknown" if receipt.cost is None else receipt.cost,
        "cost_currency": receipt.currency,
        "cost_prices": receipt.prices,
        "usage_by_model": json.dumps(models, separators=(",", ":")),
    }


def cost_in_dollars(receipt: Receipt) -> float:
    """Return what is known of the cost for the platform's field, which takes no text, no other currency and no unknown."""
    if receipt.currency != "USD":
        return 0.0
    return float(sum((Decimal(model.cost) for model in receipt.models if model.cost is not None), Decimal(0)))


def _model_in_words(model: ModelUsage, currency: str) -> str:
    usage = model.usage
    calls = f"{usage.model_calls} call{'' if usage.model_calls == 1 else 's'}"
    parts = [f"{model.model!r} ({model.role.replace('_', ' ')}): {calls}", f"{usage.total_tokens:,} tokens"]
    if model.lost_tokens:
        parts.append(f"{model.lost_tokens:,} of them in answers that broke off")
    parts.append("cost unknown" if model.cost is None else _amount(model.cost, currency))
    return ", ".join(parts)


def _amount(text: str, currency: str) -> str:
    """Return an amount to four places; one that is there does not become nothing."""
    amount = Decimal(text)
    if 0 < amount < Decimal("0.00005"):
        return f"less than {currency} 0.0001"
    return f"{currency} {amount:.4f}"
