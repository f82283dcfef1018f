"""Which tool call a fragment belongs to (L126-L127)."""

from uuid import uuid4

from dsh_brand import scrub_surrogates
from dsh_llm import CallId

from .payloads import ToolFragment
from .tracks import CallTrack


class CallTable:
    """The calls of one response, found by index, by id, or as the latest one."""

    def __init__(self) -> None:
        self._by_index: dict[int, CallTrack] = {}
        self._by_given_id: dict[str, CallTrack] = {}
        self._ids: set[str] = set()
        self._latest: CallTrack | None = None

    def find(self, fragment: ToolFragment) -> CallTrack | None:
        """The call that this fragment continues, `None` when it begins another one."""
        name = fragment.function.name if fragment.function is not None else None
        given = fragment.id or ""
        call = self._find(fragment.index, given, name or "")
        if call is None:
            return None
        if given and not call.given_id:
            call.given_id = given
            self._by_given_id.setdefault(given, call)
        self._touch(call, fragment)
        return call

    def begin(self, fragment: ToolFragment, block_index: int) -> CallTrack:
        """Add the call that this fragment begins."""
        given = fragment.id or ""
        own = scrub_surrogates(given)
        call_id = own if own and own not in self._ids else f"call_{uuid4().hex}"
        call = CallTrack(block_index, CallId(call_id), given)
        self._ids.add(call_id)
        if given:
            self._by_given_id[given] = call
        self._touch(call, fragment)
        return call

    def _find(self, index: int | None, given: str, name: str) -> CallTrack | None:
        if index is None:
            if given:
                return self._by_given_id.get(given)
            return None if name else self._latest
        call = self._by_index.get(index)
        if call is None or not (given and name and call.given_id) or given == call.given_id:
            return call
        # Some local servers mark all calls with index 0: another id with a name is another call.
        return self._by_given_id.get(given)

    def _touch(self, call: CallTrack, fragment: ToolFragment) -> None:
        self._latest = call
        if fragment.index is not None:
            self._by_index[fragment.index] = call
