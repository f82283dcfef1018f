"""llama.cpp's own HTTP server, inside this process, on a free loopback port."""

from collections.abc import Callable
from pathlib import Path

import anyio
from anyio import to_thread

from .config import Config
from .errors import ModelUnusableError

_SILENT = -1


class LocalServer:
    """A running server; `stop` ends it."""

    def __init__(self, address: str, release: Callable[[], None]) -> None:
        self.base_url = f"{address}/v1"
        """Prefix of its endpoints."""
        self._release = release

    @classmethod
    async def start(cls, model: Path, config: Config) -> "LocalServer":
        """Load the model, in a worker thread; takes seconds, and is not interrupted half-way.

        Raises:
            ModelUnusableError: llama.cpp refuses the file.
        """
        # A cancellation waits for the thread: an abandoned start would leave an orphan server.
        return await to_thread.run_sync(_start, model, config)

    async def stop(self) -> None:
        """End it, in a worker thread; an answer that still runs is waited for."""
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self._release)


def _start(model: Path, config: Config) -> LocalServer:
    # A native library of many megabytes, needed by whoever serves a model only.
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.model_alias = {model_id(model)}
    parameters.n_ctx = config.context_window * config.parallel
    parameters.n_parallel = config.parallel
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.use_jinja = True
    parameters.ui = False
    # The terminal belongs to the application.
    parameters.verbosity = _SILENT
    if config.threads is not None:
        parameters.cpuparams.n_threads = config.threads
    try:
        running = [xllamacpp.Server(parameters)]
    except RuntimeError as error:
        raise ModelUnusableError(
            f"llama.cpp cannot serve {str(model)!r} with a window of {parameters.n_ctx} tokens; "
            "the file may be damaged, of a newer kind, or too large for the memory",
            error,
        ) from error
    # The library stops a server when its object goes away; the list holds the only reference.
    return LocalServer(running[0].listening_address, running.clear)


def model_id(model: Path) -> str:
    """The id under which a model file is listed: its name without quantization and ending."""
    return model.name.removesuffix(".gguf").split(".")[0].lower()
