"""What passes the gate and as what; the table is the contract's."""

import codecs

import pytest

from context_client.embedded.gate import Pass, Refusal, judge_content, judge_safety, judge_user_upload, processing_type
from context_client.embedded.settings import FilePolicy
from context_client.embedded.text import to_utf8

POLICY = FilePolicy()
TEXT = b"plain words\n"
TAR = b"a.txt".ljust(257, b"\0") + b"ustar\0"
ZIP = b"PK\x03\x04" + bytes(40)
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(40)
OFFICE = ZIP + b"[Content_Types].xml word/document.xml"

TEXT_EXTENSIONS = "c cpp cs css html ini java js json jsonl md php py rb rtf sh tex toml ts txt xml yaml yml csv tsv".split()
UNKNOWN_EXTENSIONS = "patch diff log ndjson htm svg sql go rs h hpp kt jsx tsx cfg conf env lock ipynb ps1 bat".split()


@pytest.mark.parametrize("extension", TEXT_EXTENSIONS)
def test_known_text_passes(extension: str) -> None:
    verdict = judge_content(f"a.{extension}", TEXT, POLICY)
    assert isinstance(verdict, Pass)
    assert verdict.is_text


@pytest.mark.parametrize("name", [*(f"a.{extension}" for extension in UNKNOWN_EXTENSIONS), "Makefile", "", "a."])
def test_text_under_other_names_is_refused(name: str) -> None:
    verdict = judge_content(name, TEXT, POLICY)
    assert isinstance(verdict, Refusal)
    assert verdict.status == 422


@pytest.mark.parametrize(
    ("name", "start", "content_type"),
    [
        ("a.jsonl", TEXT, "application/x-ndjson"),
        ("a.patch.txt", TEXT, "text/plain"),
        ("run.log.txt", b"", "text/plain"),
        ("a.TXT", TEXT, "text/plain"),
        ("a.zip", ZIP, "application/x-compressed"),
        ("a.tar", TAR, "application/x-tar"),
        ("a.docx", OFFICE, "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("a.xls", OLE, "application/vnd.ms-excel"),
        ("a.pdf", b"%PDF-1.7", "application/pdf"),
        ("a.jpg", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("a.wav", b"RIFF\0\0\0\0WAVE", "audio/wav"),
        ("a.xml", b"<?xml version='1.0'?>", "text/xml"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_fits_passes_as_what_it_is(name: str, start: bytes, content_type: str) -> None:
    verdict = judge_content(name, start, POLICY)
    assert isinstance(verdict, Pass)
    assert verdict.content_type == content_type


@pytest.mark.parametrize(
    ("name", "start", "status"),
    [
        ("a.tar.gz", b"\x1f\x8b\x08", 415),
        ("a.tgz", b"\x1f\x8b\x08", 415),
        ("a.tar.bz2", b"BZh9", 415),
        ("a.bin", b"\0\1\2", 415),
        ("a.pkl", b"\x80\x04\x95\0", 415),
        ("a.webp", b"RIFF\0\0\0\0WEBP", 415),
        ("coloured.txt", b"\x1b[31mred\x1b[0m" * 9, 415),
        ("a.7z", b"7z\xbc\xaf\x27\x1c", 422),
        ("a.zip", b"Rar!\x1a\x07", 422),
        ("a.whl", ZIP, 422),
        ("a.tif", b"II*\0", 422),
        ("report.txt", b"<?xml version='1.0'?>", 422),
        ("notes.txt", b"BMW drives", 422),
        ("notes.md", b"MZ is a start", 415),
        ("a.tar", b"BM.txt".ljust(257, b"\0") + b"ustar\0", 422),
        ("bundle.zip", OFFICE, 422),
        ("a.zip", TEXT, 422),
    ],
    ids=range(17),
)
def test_what_does_not_fit_is_refused(name: str, start: bytes, status: int) -> None:
    verdict = judge_content(name, start, POLICY)
    assert isinstance(verdict, Refusal)
    assert verdict.status == status


@pytest.mark.parametrize("name", ["a.patch", "a.tar.gz", "Makefile", "a.bin", "a.\N{SNOWMAN}"])
def test_older_servers_take_everything(name: str) -> None:
    policy = FilePolicy(gate="permissive")
    verdict = judge_content(name, b"\x1f\x8b\0" if "gz" in name else TEXT, policy)
    assert isinstance(verdict, Pass)
    assert judge_user_upload(name, verdict, 1, policy) is None


def passed(name: str, start: bytes) -> Pass:
    verdict = judge_content(name, start, POLICY)
    assert isinstance(verdict, Pass)
    return verdict


@pytest.mark.parametrize(
    ("name", "start", "size", "status"),
    [
        ("a.toml", TEXT, 1, 415),
        ("a.tsv", TEXT, 1, 415),
        ("a.png", b"\x89PNG\r\n\x1a\n", 20 * 1024 * 1024, None),
        ("a.png", b"\x89PNG\r\n\x1a\n", 20 * 1024 * 1024 + 1, 415),
        ("a.png", b"\x89PNG\r\n\x1a\n", -1, None),
        ("a.csv", TEXT, 99_999_999, None),
    ],
    ids=["toml", "tsv", "png", "big-png", "agent-png", "big-csv"],
)
def test_the_administrators_list_and_limits_hold_for_users(name: str, start: bytes, size: int, status: int | None) -> None:
    verdict = judge_user_upload(name, passed(name, start), size, POLICY)
    assert (verdict.status if verdict else None) == status


@pytest.mark.parametrize(
    ("name", "start", "kind"),
    [
        ("a.txt", TEXT, "data_pipeline"),
        ("a.pdf", b"%PDF", "data_pipeline"),
        ("a.png", b"\x89PNG\r\n\x1a\n", "completion_request_context"),
        ("a.zip", ZIP, "none"),
        ("a.csv", TEXT, "none"),
    ],
    ids=["txt", "pdf", "png", "zip", "csv"],
)
def test_how_a_file_reaches_a_prompt(name: str, start: bytes, kind: str) -> None:
    assert processing_type(passed(name, start), 1000, POLICY) == kind


def test_without_a_safety_pipeline_only_archives_media_and_old_office_pass() -> None:
    policy = FilePolicy(safety_check="refuse")
    refused = [
        name
        for name, start in (("a.zip", ZIP), ("a.tar", TAR), ("a.png", b"\x89PNG\r\n\x1a\n"), ("a.doc", OLE), ("a.txt", TEXT))
        if judge_safety(name, "file-1", passed(name, start), policy)
    ]
    assert refused == ["a.txt"]


@pytest.mark.parametrize("data", [b"", b"ascii\r\n", "grüße 🎉\n".encode(), bytes(range(9, 127))], ids=["none", "ascii", "utf-8", "range"])
def test_utf8_stays_as_it_is(data: bytes) -> None:
    assert to_utf8(data) == data
    assert to_utf8(codecs.BOM_UTF8 + data) == data


@pytest.mark.parametrize("data", ["Das ist schön – wirklich".encode("cp1252"), bytes([0x81, 0x8D, 0xFF])], ids=["cp1252", "undefined"])
def test_other_text_becomes_utf8(data: bytes) -> None:
    assert to_utf8(data).decode("utf-8")


def test_windows_text_is_read_as_such() -> None:
    text = "Die Prüfung läuft über größere Flächen, natürlich für alle. " * 20
    assert to_utf8(text.encode("cp1252")).decode("utf-8") == text
