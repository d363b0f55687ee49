"""The façade offers what it says, and the words behave."""

import json

import pytest

import context_client
from context_client import ContextApiError, ContextClientError, IdentityError, UserIdentity
from context_client.multipart import attachment_of, disposition_of, file_name_of


def test_the_facade_lists_what_it_offers() -> None:
    assert len(set(context_client.__all__)) == len(context_client.__all__)
    assert all(getattr(context_client, name) is not None for name in context_client.__all__)


def test_every_error_of_an_operation_carries_what_happened() -> None:
    kinds = [getattr(context_client, name) for name in context_client.__all__]
    errors = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, ContextApiError)]
    assert len(errors) == 12
    assert all(issubclass(kind, ContextClientError) for kind in errors)
    error = context_client.ServerFault("title", detail="detail", status=500)
    assert (error.title, error.detail, error.status, str(error)) == ("title", "detail", 500, "title (HTTP 500): detail")


def test_an_identity_is_handed_on_unchanged() -> None:
    text = '{"name": "Zoë", "upn": "Zoe@x", "associated_with_access_token": false, "group_ids": ["g"], "tenant": {"a": 1}}'
    identity = UserIdentity.from_header(text)
    header = identity.to_header()
    assert header.isascii()
    assert json.loads(text).items() <= json.loads(header).items()


def test_nulls_in_an_identity_are_absent_values() -> None:
    identity = UserIdentity.from_header('{"name": null, "upn": null, "group_ids": null, "associated_with_access_token": null}')
    assert (identity.name, identity.upn, identity.group_ids) == (None, "", ())


@pytest.mark.parametrize("text", ["", "no", "[]", "null", '{"upn": 7}', '{"group_ids": "g"}', "[" * 100_000], ids=range(7))
def test_a_broken_identity_is_refused(text: str) -> None:
    with pytest.raises(IdentityError, match="send"):
        UserIdentity.from_header(text)


NAMES = ["a.zip", "two words.zip", "Prüfung 🧪.zip", 'say "hi".txt', "a\r\nX-Evil: 1.txt", "back\\slash", "=?utf-8?B?YQ==?=", "🎉" * 300]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize("write", [disposition_of, attachment_of], ids=["form", "answer"])
def test_file_names_survive_a_header(name: str, write: object) -> None:
    header = write(name)  # type: ignore[operator]
    assert header.isascii()
    assert not set("\r\n") & set(header)
    assert file_name_of(header) == name


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("form-data; name=file", None),
        ('form-data; name="file"; filename=""', ""),
        ("form-data; name=file; filename=a.txt; filename*=utf-8''%e2%82%ac.txt", "€.txt"),
        ("form-data; filename*=iso-8859-1'en'%A3.txt", "£.txt"),
        ('form-data; filename="=?utf-8?Q?a_=C3=A4.txt?="', "a ä.txt"),
        ('form-data; filename="=?utf-8?B?w6Q=?= =?utf-8?B?w7Y=?="', "äö"),
        ('form-data; filename="=?unicode_escape?B?XHVkODAw?="', "\\ud800"),
        ('form-data; filename="=?utf-8?B?!!!?="', "=?utf-8?B?!!!?="),
    ],
    ids=range(8),
)
def test_file_names_are_read_in_every_spelling(header: str, name: str | None) -> None:
    assert file_name_of(header) == name
