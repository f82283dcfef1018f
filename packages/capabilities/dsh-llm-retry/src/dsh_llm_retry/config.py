"""Configuration: there is none, and the errors say where it belongs."""

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

_POLICY_KEYS: Final = ("retryPolicy", "retry_policy", "retry")


class Config(BaseModel):
    """Nothing can be set here: each provider's own configuration holds its retry policy."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_keys(cls, value: object) -> object:
        if not isinstance(value, Mapping) or not value:
            return value
        problems = [(key, _advice(key)) for key in map(str, value)]
        # The values are left out: nobody knows what a wrong key holds.
        raise ValidationError.from_exception_data(
            cls.__name__,
            [
                {"type": "value_error", "loc": (key,), "input": None, "ctx": {"error": text}}
                for key, text in problems
            ],
        )


def _advice(key: str) -> str:
    if key in _POLICY_KEYS:
        return (
            "a retry policy belongs to its provider: move it into the provider's configuration, "
            "such as `providers.<route>.retry` of llm-openai"
        )
    return "unknown key; this plugin has no settings"
