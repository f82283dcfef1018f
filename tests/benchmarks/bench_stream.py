"""Assembling an answer of a thousand chunks against joining its text."""

from collections.abc import Callable, Mapping

from dsh_llm import (
    AssistantStreamAccumulator,
    BlockAssembler,
    BlockEnd,
    BlockStart,
    FinishChunk,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDelta,
)

BASELINE = "joining the text"
DELTAS = 1000


def cases() -> Mapping[str, Callable[[], object]]:
    """Each case takes the whole stream once."""
    deltas = [TextDelta(index=0, text=f"word{number} ") for number in range(DELTAS)]
    text = "".join(delta.text for delta in deltas)
    chunks: list[StreamChunk] = [
        BlockStart(index=0, block_type="text"),
        *deltas,
        BlockEnd(index=0, block=TextBlock(text=text)),
        FinishChunk(reason=StopFinish()),
    ]

    def assemble() -> object:
        assembler = BlockAssembler()
        for chunk in chunks:
            assembler.push(chunk)
        return assembler.blocks()

    def record() -> object:
        accumulator = AssistantStreamAccumulator()
        for time, chunk in enumerate(chunks):
            accumulator.push(time, chunk)
        return accumulator.snapshot()

    return {
        "joining the text": lambda: "".join([delta.text for delta in deltas]),
        "assembling the blocks": assemble,
        "recording the stream": record,
    }
