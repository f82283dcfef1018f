"""Where a message came from. Upstream: packages/llm/llm/src/message.ts."""

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar, cast, get_args

import msgspec
from typing_extensions import override

from dsh_brand import (
    Json,
    JsonObject,
    JsonValue,
    OpenUnion,
    Wire,
    freeze_json,
    freeze_object,
    from_json,
)
from dsh_llm.ids import CallId

S = TypeVar("S", bound="MessageSource")

SourceForm: TypeAlias = Literal["instructions", "catalog", "snapshot", "notice", "relay", "recall"]
"""How the content of a producer's message is to be read."""

_FORMS: Final[frozenset[str]] = frozenset(get_args(SourceForm))
_SUMMARY_LIMIT: Final = 120


class ReplayEnvelope(Wire, frozen=True):
    """What an adapter wants back with its own earlier answer; opaque to everybody else."""

    response: Json
    blocks: tuple[Json, ...] | None = None
    """One entry per emitted block, in first-seen order."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "response", freeze_json(self.response))
        if self.blocks is not None:
            frozen = tuple(freeze_json(block) for block in self.blocks)
            msgspec.structs.force_setattr(self, "blocks", frozen)


class MessageSource(Wire, frozen=True, tag_field="kind"):
    """Base of the sources; producers join by `register_source`."""

    @property
    def kind(self) -> str:
        """The tag that names this source on the wire."""
        return str(self.__struct_config__.tag)


class UserSource(MessageSource, frozen=True, tag="user"):
    """A person wrote it."""


class ModelSource(MessageSource, frozen=True, tag="model"):
    """A model answered; on assistant messages only."""

    provider: str
    model: str
    replay_state: ReplayEnvelope | None = None


class ToolSource(MessageSource, frozen=True, tag="tool"):
    """A tool returned it; on tool messages only."""

    call_id: CallId


class SystemPromptSource(MessageSource, frozen=True, tag="system-prompt"):
    """The assembled prompt; on system messages only."""


class SnapshotSection(Wire, frozen=True):
    """A named part of a snapshot."""

    name: str
    text: str


class ProducerSource(MessageSource, frozen=True, tag="producer"):
    """Base of the sources of producers: a subclass gives its own `tag` and registers itself.

    There is no kind shared by plugins, so this class itself is not registered.
    """

    form: str | None = None
    """A `SourceForm`; a word that this build does not know is kept and counts as undeclared."""
    sections: tuple[SnapshotSection, ...] | None = None
    """The parts of a `snapshot`, in order."""
    summary: str | None = None
    """The one line that a `notice` shows."""


class RuntimeContextSource(ProducerSource, frozen=True, tag="runtime-context"):
    """The facts of the moment: working folder, policies, date."""


class ModelSelectionSource(ProducerSource, frozen=True, tag="model-selection"):
    """The session went on with another model."""


class PromptFallbackSource(ProducerSource, frozen=True, tag="prompt-fallback"):
    """The prompt, where no system message may stand."""


class ToolRegistrySource(ProducerSource, frozen=True, tag="tool-registry"):
    """Tools came or went."""


class OpaqueSource(MessageSource, frozen=True, tag=False):
    """A source of a kind that nobody registered, kept whole."""

    @property
    def raw(self) -> JsonObject:
        """The JSON object as it was read."""
        return freeze_object({}) if self.extra is None else self.extra

    @property
    @override
    def kind(self) -> str:
        """The unregistered tag; empty if the object has none."""
        tag = self.raw.get("kind")
        return tag if isinstance(tag, str) else ""


_SOURCES = OpenUnion(MessageSource, OpaqueSource)


def register_source(cls: type[S]) -> type[S]:
    """Teach the wire a kind of source, by its tag; usable as a decorator."""
    return _SOURCES.register(cls)


for _core in (
    UserSource,
    ModelSource,
    ToolSource,
    SystemPromptSource,
    RuntimeContextSource,
    ModelSelectionSource,
    PromptFallbackSource,
    ToolRegistrySource,
):
    _SOURCES.register(_core)

if TYPE_CHECKING:  # as `ContentBlock`: an open union for the checker, the core tags for msgspec
    AnySource: TypeAlias = MessageSource
else:
    AnySource = (
        UserSource
        | ModelSource
        | ToolSource
        | SystemPromptSource
        | RuntimeContextSource
        | ModelSelectionSource
        | PromptFallbackSource
        | ToolRegistrySource
    )


def source_form(source: MessageSource) -> SourceForm | None:
    """The declared form of a source; `None` if it has none, or a word that nobody knows."""
    form: object = None
    if isinstance(source, ProducerSource):
        form = source.form
    elif isinstance(source, OpaqueSource):
        form = source.raw.get("form")
    return cast("SourceForm", form) if isinstance(form, str) and form in _FORMS else None


def source_from_json(value: JsonValue) -> MessageSource:
    """Read a source; an unregistered kind is kept whole.

    Raises:
        ValueError: Not a source; the message names the path.
    """
    return from_json(MessageSource, value)


def bound_context_summary(text: str) -> str:
    """`text` when it has at most 120 characters, else its first 119 and an ellipsis."""
    return text if len(text) <= _SUMMARY_LIMIT else f"{text[: _SUMMARY_LIMIT - 1]}…"
