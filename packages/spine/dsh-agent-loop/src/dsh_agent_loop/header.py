"""The header of a request: the logged one again, while it is made of the same parts."""

from dsh_llm import AdapterDefaults, LlmCallConfig, ToolSchema, call_config_equals
from dsh_session import RequestHeader, canonical_header


class HeaderMaker:
    """Makes the headers of one agent's requests.

    A comparison renders every tool, so a header whose tools are the very objects that the logged
    one was made of is not compared but is that one.
    """

    __slots__ = (
        "_logged",
        "_tools",
    )

    def __init__(self) -> None:
        self._tools: tuple[ToolSchema, ...] = ()
        self._logged: RequestHeader | None = None

    def make(
        self,
        config: LlmCallConfig,
        marks: AdapterDefaults | None,
        tools: tuple[ToolSchema, ...],
        previous: RequestHeader | None,
    ) -> RequestHeader:
        """The canonical header; `previous` itself if that was made of the same parts.

        Args:
            config: Of the call.
            marks: Which of its fields the adapter supplied.
            tools: Of the step's prompt.
            previous: The last header of the log.
        """
        if (
            previous is not None
            and previous is self._logged
            and tools is self._tools
            and marks == previous.adapter_defaults
            and call_config_equals(config, previous.config)
        ):
            return previous
        return canonical_header(
            RequestHeader(config=config, adapter_defaults=marks, tools=tools or None)
        )

    def note(self, tools: tuple[ToolSchema, ...], logged: RequestHeader | None) -> None:
        """Remember what the last header of the log is made of."""
        self._tools, self._logged = tools, logged
