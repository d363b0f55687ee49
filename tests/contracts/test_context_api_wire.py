"""The Context API's samples: what we read equals what we write, and our two ends are not wrong together."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from context_client import (
    CodeSession,
    EndpointOverride,
    ExecutionResult,
    FileRecord,
    ServiceStatus,
    SessionDownload,
    SessionUpload,
    UserIdentity,
)
from context_client.embedded.container import interpret_execution, parse_listing
from context_client.embedded.problems import Problem
from context_client.embedded.requests import CreateRequest, DownloadRequest, ExecuteRequest, UploadRequest
from context_client.judge import judge

SAMPLES = Path(__file__).parent / "samples" / "context_api"

MODELS: Mapping[str, type[BaseModel]] = {
    "file_record.agent_file": FileRecord,
    "file_record.code_session": FileRecord,
    "file_record.user_upload": FileRecord,
    "file_record.user_upload_pdf": FileRecord,
    "create_code_session.request": CreateRequest,
    "create_code_session.request_with_override": CreateRequest,
    "create_code_session.response": CodeSession,
    "create_code_session.response_override": CodeSession,
    "upload_files.request": UploadRequest,
    "upload_files.request_clean_only": UploadRequest,
    "upload_files.response": SessionUpload,
    "upload_files.response_clean_only": SessionUpload,
    "execute_code.request": ExecuteRequest,
    "execute_code.response_ok": ExecutionResult,
    "execute_code.response_ok_no_result": ExecutionResult,
    "execute_code.response_user_exception": ExecutionResult,
    "execute_code.response_container_invalid_json": ExecutionResult,
    "execute_code.response_container_non2xx": ExecutionResult,
    "execute_code.response_container_unreachable": ExecutionResult,
    "download_files.request": DownloadRequest,
    "download_files.response": SessionDownload,
    "download_files.response_empty": SessionDownload,
    "download_files.response_with_errors": SessionDownload,
    "status.response": ServiceStatus,
    "header_x_user_identity": UserIdentity,
}

ERRORS = {
    "create_code_session.error_validation_http500": (500, "InvalidRequest"),
    "delete_file_record.failure_http200": (200, "NotFoundOrNotOwned"),
    "error_file_not_found_http500": (500, "NotFoundOrNotOwned"),
    "error_missing_property_http400": (400, "InvalidRequest"),
    "error_session_not_found_http500": (500, "NotFoundOrNotOwned"),
    "error_upload_content_type_http415": (415, "ContentRefused"),
    "error_upload_extension_http415": (415, "ContentRefused"),
    "error_upload_mismatch_http422": (422, "ContentRefused"),
    "error_upload_no_agent_http400": (400, "InvalidRequest"),
    "error_upload_unsafe_http422": (422, "ContentRefused"),
}

EXECUTIONS = {
    "container.execute.response_ok": "execute_code.response_ok",
    "container.execute.response_no_result": "execute_code.response_ok_no_result",
    "container.execute.response_user_exception": "execute_code.response_user_exception",
}

# Read by other parts: the orchestration's artifacts, the platform's configuration, the interpreter we do not speak to.
ELSEWHERE = (
    "api_endpoint_configuration.",
    "code_interpreter.",
    "config.",
    "content_artifact.",
    "content_item.",
    "cosmos.",
    "container.",
    "multipart.",
)


def sample(name: str) -> Any:
    return json.loads((SAMPLES / f"{name}.json").read_text())


def test_every_sample_is_looked_at() -> None:
    names = {path.name.removesuffix(".json").removesuffix(".txt") for path in SAMPLES.iterdir()}
    assert {name for name in names if not name.startswith(ELSEWHERE)} == set(MODELS) | set(ERRORS)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_is_written_back_in_the_same_order(name: str) -> None:
    text = (SAMPLES / f"{name}.json").read_text()
    model = MODELS[name].model_validate_json(text)
    assert model.model_dump_json(indent=2) == json.dumps(json.loads(text), indent=2)


def test_an_override_is_part_of_the_request() -> None:
    override = EndpointOverride.model_validate(sample("create_code_session.request_with_override")["endpoint_provider_override"])
    assert override.enabled


@pytest.mark.parametrize("name", ERRORS)
def test_failures_are_told_apart(name: str) -> None:
    status, expected = ERRORS[name]
    body = (SAMPLES / f"{name}.json").read_bytes()
    purpose: Any = "create" if name.startswith("create") else "lookup"
    error = judge(status, "application/json; charset=utf-8", body, purpose=purpose)
    assert type(error).__name__ == expected
    assert error is not None
    assert (error.title, error.status) == (sample(name)["title"], sample(name)["status"])
    assert error.detail


@pytest.mark.parametrize("name", EXECUTIONS)
def test_what_a_container_says_is_retold(name: str) -> None:
    body = (SAMPLES / f"{name}.json").read_bytes()
    assert interpret_execution(200, body) == sample(EXECUTIONS[name])


@pytest.mark.parametrize(
    ("status", "body", "retold"),
    [
        (500, "container.execute.response_internal_http500", "execute_code.response_container_non2xx"),
        (400, "container.execute.response_missing_code_http400", "execute_code.response_container_non2xx"),
        (200, "multipart.upload_to_container", "execute_code.response_container_invalid_json"),
        (200, "container.delete.response", "execute_code.response_container_unreachable"),
        (200, "container.list.error_http500", "execute_code.response_container_unreachable"),
    ],
)
def test_what_a_container_should_not_say_becomes_failed(status: int, body: str, retold: str) -> None:
    path = next(SAMPLES.glob(f"{body}.*"))
    answer = interpret_execution(status, path.read_bytes())
    expected = sample(retold)
    assert list(answer) == list(expected)
    assert (answer["status"], answer["standard_output"]) == (expected["status"], expected["standard_output"])
    assert answer["execution_result"]
    assert answer["error_output"]


def test_a_data_frame_stays_json_text() -> None:
    body = (SAMPLES / "container.execute.response_dataframe.json").read_bytes()
    result = interpret_execution(200, body)["execution_result"]
    assert json.loads(result) == json.loads(body)["detail"]["results"]


@pytest.mark.parametrize(
    "name",
    [
        "container.list.response",
        "container.list.response_empty",
        "container.list.response_recommended_nested_for_our_runner",
        "code_interpreter.list.response_shape_read_by_context_api",
    ],
)
def test_listings_are_read(name: str) -> None:
    assert parse_listing((SAMPLES / f"{name}.json").read_bytes()) == sample(name)["value"]


@pytest.mark.parametrize("missing", ["name", "type", "contentType", "sizeInBytes", "lastModifiedAt"])
def test_a_listing_with_a_missing_name_is_none(missing: str) -> None:
    listing = sample("container.list.response")
    del listing["value"][0][missing]
    with pytest.raises(Problem) as caught:
        parse_listing(json.dumps(listing).encode())
    assert caught.value.status == 500
