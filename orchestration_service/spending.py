"""What the model calls of a turn used and cost, by model. Pure.

Each answer goes to the sandbox with its charges beside it, so that whoever takes a turn over knows them from the stored messages.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from pydantic import BaseModel, ConfigDict, Field

from orchestration_service.model_choice import MAIN
from orchestration_service.model_routes import RoutedModel
from orchestration_service.prices import PriceTable, money
from workflow_schemas.usage import ModelUsage, Usage


class Charge(BaseModel):
    """What one call used of one model."""

    model_config = ConfigDict(frozen=True)

    role: str = Field(MAIN, description="The model's role.")
    answered_as: str = Field("", max_length=200, description="What the model calls itself in the answer; says what a deployment is.")
    usage: Usage = Field(default_factory=Usage, description="Tokens of the answer.")
    lost: Usage = Field(default_factory=Usage, description="Tokens of attempts that broke off.")

    @property
    def counted(self) -> Usage:
        """Everything that was used; only an answer counts as a call."""
        return self.usage.plus(self.lost.model_copy(update={"model_calls": 0}))


@dataclass
class _Account:
    usage: Usage = field(default_factory=Usage)
    lost_tokens: int = 0
    cost: Decimal = Decimal(0)
    is_priced: bool = True


class Spending:
    """The account of a turn.

    Args:
        models: The models of the turn.
        prices: What they cost.
        charges: What was charged before.
    """

    def __init__(self, models: Sequence[RoutedModel], prices: PriceTable, charges: Iterable[Charge] = ()) -> None:
        self._models = {model.role: model for model in models}
        self._prices = prices
        self._accounts: dict[str, _Account] = {}
        self.usage = Usage()
        """Everything that was used."""
        for charge in charges:
            self.add(charge)

    def add(self, charge: Charge) -> None:
        """Charge what a call used."""
        account = self._accounts.setdefault(charge.role, _Account())
        account.usage = account.usage.plus(charge.counted)
        account.lost_tokens += charge.lost.total_tokens
        self.usage = self.usage.plus(charge.counted)
        model = self._models.get(charge.role)
        names = [name for name in (model.model if model else "", charge.answered_as) if name]
        price = self._prices.find(names, model.route.provider if model else "")
        if price is not None:
            account.cost += price.of(charge.usage) + price.of(charge.lost)
        elif charge.counted.total_tokens:
            account.is_priced = False

    @property
    def models(self) -> tuple[ModelUsage, ...]:
        """What each model used and cost, those that were called."""
        return tuple(self._told(role, account) for role, account in self._accounts.items() if account.usage.total_tokens)

    @property
    def cost(self) -> str | None:
        """The price of everything; None when a part of it is not known."""
        if not all(account.is_priced for account in self._accounts.values()):
            return None
        return money(sum((account.cost for account in self._accounts.values()), Decimal(0)))

    @property
    def currency(self) -> str:
        """Currency of all prices."""
        return self._prices.currency

    @property
    def prices(self) -> str:
        """Where the prices come from."""
        return self._prices.in_words

    def _told(self, role: str, account: _Account) -> ModelUsage:
        model = self._models.get(role)
        return ModelUsage(
            model=model.model if model else "",
            role=role,
            endpoint=model.endpoint if model else "",
            usage=account.usage,
            lost_tokens=account.lost_tokens,
            cost=money(account.cost) if account.is_priced else None,
        )
