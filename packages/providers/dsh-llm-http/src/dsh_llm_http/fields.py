"""A payload read field by field, for what a typed decoder refuses (L112)."""

from collections.abc import Mapping

from dsh_brand import decode_json, encode_json
from dsh_llm import LlmError
from dsh_llm.codes import MALFORMED_RESPONSE

from .sse import excerpt


class Fields:
    """The fields of an object: a wrong scalar counts as absent, a wrong list or object fails.

    Args:
        values: The object.
        data: The payload it is part of, which a failure quotes.
    """

    __slots__ = ("_data", "values")

    def __init__(self, values: Mapping[str, object], data: bytes) -> None:
        self.values = values
        self._data = data

    @classmethod
    def of(cls, data: bytes, *, document: bool = False) -> "Fields":
        """Parse a payload, or a document in its place, which may be wrapped into a list.

        Raises:
            LlmError: `MALFORMED_RESPONSE`: not JSON, or no object.
        """
        try:
            parsed: object = decode_json(data.decode("utf-8", "replace"))
        except ValueError as error:
            raise _malformed("is not JSON", data) from error
        if document and isinstance(parsed, list) and len(parsed) == 1:
            parsed = parsed[0]
        if not isinstance(parsed, Mapping):
            raise _malformed("is not a JSON object", data)
        return cls(parsed, data)

    def string(self, name: str) -> str | None:
        """A field's text."""
        value = self.values.get(name)
        return value if isinstance(value, str) else None

    def count(self, name: str) -> int | None:
        """A field's whole number."""
        value = self.values.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def part(self, name: str) -> "Fields | None":
        """A field's object, `None` without one.

        Raises:
            LlmError: `MALFORMED_RESPONSE`: it is something else.
        """
        value = self.values.get(name)
        return None if value is None else self._object(value, name)

    def parts(self, name: str, item: str) -> "list[Fields]":
        """The objects of a list; none without a list.

        Args:
            name: The field.
            item: What one of them is, for the message of a failure.

        Raises:
            LlmError: `MALFORMED_RESPONSE`: it is no list, or something else is in it.
        """
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise _malformed(f"holds {name} that is not a list", self._data)
        return [self._object(each, item) for each in value]

    def optional(self, name: str) -> "Fields":
        """A field's object, an empty one in place of anything else."""
        value = self.values.get(name)
        return Fields(value if isinstance(value, Mapping) else {}, self._data)

    def text_of(self, name: str) -> bytes | None:
        """A field's value as JSON text, `None` without one.

        Raises:
            LlmError: `MALFORMED_RESPONSE`: it holds what no JSON can say, such as 1e400.
        """
        value = self.values.get(name)
        if value is None:
            return None
        try:
            return encode_json(value)  # type: ignore[arg-type]  # checks it, too
        except ValueError as error:
            raise _malformed(f"holds {name} that is not JSON", self._data) from error

    def names_error(self) -> bool:
        """Whether the field `error` holds one."""
        error = self.values.get("error")
        return isinstance(error, Mapping | str) and bool(error)

    def _object(self, value: object, what: str) -> "Fields":
        if not isinstance(value, Mapping):
            raise _malformed(f"holds {what} that is not an object", self._data)
        return Fields(value, self._data)


def _malformed(problem: str, data: bytes) -> LlmError:
    return LlmError(f"a payload of the stream {problem}: {excerpt(data)}", MALFORMED_RESPONSE)
