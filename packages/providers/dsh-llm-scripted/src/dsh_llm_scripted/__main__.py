"""`python -m dsh_llm_scripted --script FILE.json --port N`: the mock server by itself."""

import argparse
import sys
from pathlib import Path

import anyio

from .script import load_script
from .server import MockServer, RecordedRequest, Step


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dsh_llm_scripted", description=__doc__)
    parser.add_argument("--script", type=Path, help="JSON list of steps; default: success for ever")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--repeat-last", action="store_true", help="answer with the last step on")
    parser.add_argument("--api-key", help="require this bearer key")
    parser.add_argument("--strict", action="store_true", help="refuse what strict providers refuse")
    parser.add_argument("--seed", type=int, default=0, help="seed of the `random` behaviour")
    parser.add_argument(
        "--bind-after-ms", type=int, default=0, help="refuse connections for so long first"
    )
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _report(record: RecordedRequest) -> None:
    _say(f"{record.path} {record.behaviour} {record.outcome} chunks={record.chunks_sent}")


async def _main() -> None:
    options = _options()
    script: list[Step] = ["success"]
    if options.script is not None:
        script = load_script(await anyio.Path(options.script).read_bytes())
    await anyio.sleep(options.bind_after_ms / 1000)
    server = MockServer(
        script,
        repeat_last=options.repeat_last or options.script is None,
        api_key=options.api_key,
        strict=options.strict,
        seed=options.seed,
        port=options.port,
        observer=_report,
    )
    async with server:
        _say(f"listening on {server.base_url}")
        await anyio.sleep_forever()


if __name__ == "__main__":
    try:
        anyio.run(_main)
    except KeyboardInterrupt:
        sys.exit(130)
