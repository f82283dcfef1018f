"""Which tool call a fragment belongs to (L126-L127)."""

from dsh_llm import StreamChunk
from dsh_llm_http.tracks import CallTrack, call_id

from .payloads import ToolFragment


class CallTable:
    """The calls of one response, found by index, by id, or as the latest one."""

    def __init__(self) -> None:
        self._by_index: dict[int, CallTrack] = {}
        self._by_given_id: dict[str, CallTrack] = {}
        self._given_ids: dict[CallTrack, str] = {}
        """The provider's id of each call that it gave one."""
        self._ids: set[str] = set()
        self._latest: CallTrack | None = None

    def find(self, fragment: ToolFragment) -> CallTrack | None:
        """The call that this fragment continues, `None` when it begins another one."""
        name = fragment.function.name if fragment.function is not None else None
        given = fragment.id or ""
        call = self._find(fragment.index, given, name or "")
        if call is None:
            return None
        if given and call not in self._given_ids:
            self._given_ids[call] = given
            self._by_given_id.setdefault(given, call)
        self._touch(call, fragment)
        return call

    def begin(self, fragment: ToolFragment, index: int, out: list[StreamChunk]) -> CallTrack:
        """Add the call that this fragment begins, as the block of this index."""
        given = fragment.id or ""
        call = CallTrack(index, call_id(given, self._ids, "call"), "", out)
        if given:
            self._given_ids[call] = given
            self._by_given_id[given] = call
        self._touch(call, fragment)
        return call

    def _find(self, index: int | None, given: str, name: str) -> CallTrack | None:
        if index is None:
            if given:
                return self._by_given_id.get(given)
            return None if name else self._latest
        call = self._by_index.get(index)
        known = None if call is None else self._given_ids.get(call)
        if not (given and name and known) or given == known:
            return call
        # Some local servers mark all calls with index 0: another id with a name is another call.
        return self._by_given_id.get(given)

    def _touch(self, call: CallTrack, fragment: ToolFragment) -> None:
        self._latest = call
        if fragment.index is not None:
            self._by_index[fragment.index] = call
