"""The stand-ins' own knowledge of signatures, held against the example that AWS publishes for Signature Version 4."""

import datetime
from typing import Any

import pytest

from tests.orchestration_service.brokers.standins.sigv4 import access_key_of, fault_of

SIGNATURE = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
SCOPE = "AKIDEXAMPLE/20150830/us-east-1/service/aws4_request"
EXAMPLE: dict[str, Any] = {
    "method": "GET",
    "path": "/",
    "query": "",
    "headers": {
        "host": "example.amazonaws.com",
        "x-amz-date": "20150830T123600Z",
        "authorization": f"AWS4-HMAC-SHA256 Credential={SCOPE}, SignedHeaders=host;x-amz-date, Signature={SIGNATURE}",
    },
    "body": b"",
    "secret": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "region": "us-east-1",
    "service": "service",
    "now": datetime.datetime(2015, 8, 30, 12, 36, tzinfo=datetime.UTC),
}


def test_the_published_example_is_right() -> None:
    assert fault_of(**EXAMPLE) is None
    assert access_key_of(EXAMPLE["headers"]) == "AKIDEXAMPLE"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"method": "POST"}, id="method"),
        pytest.param({"path": "/a"}, id="path"),
        pytest.param({"query": "a=b"}, id="query"),
        pytest.param({"body": b"{}"}, id="body"),
        pytest.param({"secret": "another"}, id="key"),
        pytest.param({"region": "eu-west-1"}, id="region"),
        pytest.param({"service": "bedrock"}, id="service"),
        pytest.param({"now": None}, id="old"),
        pytest.param({"headers": {**EXAMPLE["headers"], "host": "elsewhere"}}, id="host"),
        pytest.param({"headers": {**EXAMPLE["headers"], "x-amz-security-token": "t"}}, id="unsigned_header"),
        pytest.param({"headers": {"host": "example.amazonaws.com"}}, id="unsigned"),
    ],
)
def test_anything_that_was_changed_is_noticed(change: dict[str, Any]) -> None:
    assert fault_of(**{**EXAMPLE, **change}) is not None
