"""From an assembly to what the model reads."""

from dsh_llm import Message, RuntimeContextSource, SnapshotSection, create_user_message

from . import texts
from .types import PromptAssembly, RenderedContexts


def render_prompt(assembly: PromptAssembly) -> str:
    """The system prompt: sections with their variables filled, joined by blank lines.

    Raises:
        PromptVariableError: A variable cannot be filled.
    """
    return assembly._rendered


def render_contexts(assembly: PromptAssembly) -> RenderedContexts | None:
    """The facts of the moment under their heading; `None` if there are none."""
    sections = tuple(
        SnapshotSection(name=context.name, text=context.text)
        for context in assembly.contexts
        if context.text
    )
    if not sections:
        return None
    text = "\n\n".join([texts.CONTEXT_HEADING, *(section.text for section in sections)])
    return RenderedContexts(text=text, sections=sections)


def runtime_context_message(assembly: PromptAssembly) -> Message | None:
    """The facts of the moment as a user message; `None` if there are none."""
    rendered = render_contexts(assembly)
    if rendered is None:
        return None
    source = RuntimeContextSource(form="snapshot", sections=rendered.sections)
    return create_user_message(rendered.text, source)


def cleared_context_message() -> Message:
    """Says that facts given earlier no longer apply."""
    return create_user_message(texts.CONTEXT_CLEARED, RuntimeContextSource())
