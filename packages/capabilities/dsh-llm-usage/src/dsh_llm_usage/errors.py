"""Errors of this package.

HarnessError
└── UsageError
    └── PricesMissingError (code PRICES_MISSING): the package with the prices is not installed
"""

from dsh_brand import HarnessError


class UsageError(HarnessError):
    """Usage or its cost cannot be told."""


class PricesMissingError(UsageError):
    """The package with the prices is not installed."""

    def __init__(self, cause: BaseException | None = None) -> None:
        super().__init__(
            "prices of public providers need `pip install 'dsh-llm-usage[prices]'`; or give the "
            "prices of all models that were used in the option `prices`",
            "PRICES_MISSING",
            cause,
        )
