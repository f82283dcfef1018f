"""Ids that this package makes."""

import uuid

from dsh_llm import create_user_message, fresh_uuid


def test_fresh_ids_are_random_uuids_in_their_usual_spelling() -> None:
    made = [fresh_uuid() for _ in range(200)]
    made += [create_user_message("hello").id for _ in range(200)]
    read = [uuid.UUID(text) for text in made]
    assert [str(each) for each in read] == made
    assert {(each.version, each.variant) for each in read} == {(4, uuid.RFC_4122)}
    assert {text[19] for text in made} == set("89ab")
    assert len(set(made)) == len(made)
