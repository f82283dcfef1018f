"""The prompt as the person typed it, checked before anything is opened."""

import sys

from dsh_brand import has_surrogates, is_blank
from dsh_cli.errors import CliError


def read_prompt(argument: str) -> str:
    """The prompt text; `-` reads standard input.

    Raises:
        CliError: Blank, or not UTF-8.
    """
    text = _standard_input() if argument == "-" else argument
    if has_surrogates(text):
        raise CliError("the prompt is not valid UTF-8: send it in UTF-8", "PROMPT_ENCODING")
    if is_blank(text):
        raise CliError('the prompt is empty: say what to do, as in dsh run "Explain this folder"')
    return text


def _standard_input() -> str:
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CliError(
            f"the prompt on standard input is not valid UTF-8 (byte {error.start}): "
            "send it in UTF-8",
            "PROMPT_ENCODING",
        ) from error
