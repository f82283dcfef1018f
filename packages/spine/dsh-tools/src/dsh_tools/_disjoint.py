"""Whether two schemas have no value in common: what makes a union of them usable."""

from dsh_brand import JsonValue

Schema = dict[str, JsonValue]


def disjoint(one: Schema, other: Schema) -> bool:
    """True if no value can satisfy both schemas."""
    for schema, against in ((one, other), (other, one)):
        branches = schema.get("oneOf")
        if isinstance(branches, list):
            return all(isinstance(b, dict) and disjoint(b, against) for b in branches)
    if "type" not in one or "type" not in other:
        return False
    if one["type"] != other["type"]:
        return {one["type"], other["type"]} != {"integer", "number"}
    if "enum" in one and "enum" in other:
        left, right = one["enum"], other["enum"]
        assert isinstance(left, list)
        assert isinstance(right, list)
        return not any(value in right for value in left)
    return one["type"] == "object" and _discriminated(one, other)


def _discriminated(one: Schema, other: Schema) -> bool:
    """True if a member that both require has no value in common."""
    mine, theirs = one.get("properties", {}), other.get("properties", {})
    required, needed = one.get("required", []), other.get("required", [])
    if not isinstance(mine, dict) or not isinstance(theirs, dict):
        return False
    assert isinstance(required, list)
    assert isinstance(needed, list)
    shared = [name for name in required if isinstance(name, str) and name in needed]
    for name in shared:
        left, right = mine[name], theirs[name]
        if isinstance(left, dict) and isinstance(right, dict) and disjoint(left, right):
            return True
    return False
