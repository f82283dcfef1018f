"""HTTP failures (L96-L99, L104)."""

from datetime import UTC, datetime
from typing import Any

import pytest

from dsh_llm_http.classify import error_facts, http_failure, request_id, retry_after_ms
from dsh_llm_http.classify import status_code as code_of

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "wording", "code"),
    [
        (401, "quota exceeded: insufficient_quota", "AUTH"),
        (403, "", "AUTH"),
        (413, "", "INVALID_REQUEST"),
        (429, "You exceeded your current quota", "QUOTA"),
        (500, "insufficient balance", "QUOTA"),
        (429, "slow down", "RATE_LIMIT"),
        (400, "context_length_exceeded", "CONTEXT_WINDOW_EXCEEDED"),
        (400, "bad", "INVALID_REQUEST"),
        (500, "", "SERVER"),
        (529, "", "SERVER"),
        (204, "", "EMPTY_RESPONSE"),
        (205, "", "EMPTY_RESPONSE"),
        (404, "", "HTTP_404"),
        (302, "", "HTTP_302"),
    ],
)
def test_L96_codes_of_statuses(status: int, wording: str, code: str) -> None:
    assert code_of(status, wording) == code


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": "m", "type": "t", "code": 7}}, ("m", "t", "7")),
        ([{"error": {"message": "m"}}], ("m", "", "")),
        ({"error": "text"}, ("text", "", "")),
        ({"message": "m", "code": "c", "detail": "no"}, ("m", "", "c")),
        ({"detail": "d"}, ("d", "", "")),
        ({"detail": [{"msg": "first"}, {"msg": "second"}]}, ("first", "", "")),
    ],
)
def test_L97_forms_of_error_bodies(body: object, expected: tuple[str, str, str]) -> None:
    facts = error_facts(body)
    assert facts is not None
    assert (facts.message, facts.kind, facts.code) == expected


@pytest.mark.parametrize("body", [None, 5, [], [1, 2], {}, {"detail": []}, {"error": {}}])
def test_L97_other_bodies_say_nothing(body: object) -> None:
    facts = error_facts(body)
    assert facts is None or facts.wording == ""


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "3"}, 3000),
        ({"retry-after": "0"}, None),
        ({"retry-after": "1.5"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1" * 16}, None),
        ({"retry-after": "Tue, 01 Jan 2030 00:00:02 GMT"}, 2000),
        ({"retry-after": "Tuesday, 01-Jan-30 00:00:02 GMT"}, 2000),
        ({"retry-after": "Tue Jan  1 00:00:02 2030"}, 2000),
        ({"retry-after": "Tue, 01 Jan 2030 00:00:02"}, 2000),
        ({"retry-after": "Mon, 31 Dec 2029 00:00:02 GMT"}, None),
        ({"retry-after": "Tue, 41 Jan 2030 00:00:02 GMT"}, None),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": "3", "retry-after-ms": "250.7"}, 250),
        ({"retry-after": "3", "retry-after-ms": "0"}, 3000),
        ({"retry-after": "3", "retry-after-ms": "soon"}, 3000),
        ({}, None),
    ],
)
def test_L98_retry_after(headers: dict[str, str], expected: int | None) -> None:
    assert retry_after_ms(headers, NOW) == expected


def test_L99_the_first_non_empty_id_counts() -> None:
    headers = {"x-request-id": " ", "request-id": "b", "x-deepseek-request-id": "c"}
    assert request_id(headers) == "b"
    assert request_id({}) is None


def _failure(body: bytes, status: int = 500, **headers: str) -> Any:  # compared field by field
    return http_failure(
        "Service", status, headers, body, redact=lambda text: text.replace("sk-1", "[redacted]")
    )


def test_L97_an_unreadable_body_leaves_the_status() -> None:
    error = _failure(b"\xff<html>", 502)
    assert error.message == "Service API error (HTTP 502)"
    assert error.failure.status == 502
    assert "<html>" in str(error.__cause__)
    assert _failure(b"").__cause__ is None


def test_L104_the_key_is_taken_out_of_message_and_cause() -> None:
    error = _failure(b'{"error":{"message":"bad key sk-1"}}', 401)
    assert error.message == "bad key [redacted]"
    assert "sk-1" not in str(error.__cause__)
