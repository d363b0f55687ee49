"""Signature Version 4 of AWS as its specification tells it, for checking requests; shares no code with any client."""

import datetime
import hashlib
import hmac
import re
from collections.abc import Mapping
from urllib.parse import quote

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})\Z"
)
_MOST_SKEW_SECONDS = 300


def access_key_of(headers: Mapping[str, str]) -> str | None:
    """Give the name of the key a request says it is signed with."""
    found = _AUTHORIZATION.match(headers.get("authorization", ""))
    return found.group(1) if found else None


def fault_of(
    *,
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    body: bytes,
    secret: str,
    region: str,
    service: str,
    now: datetime.datetime | None = None,
) -> str | None:
    """Say what is wrong with a signed request, if anything.

    Args:
        method: of HTTP.
        path: as it was sent, percent signs included.
        query: as it was sent.
        headers: names in lower case.
        body: the payload.
        secret: the key that must have signed.
        region: for which it must be signed.
        service: for which it must be signed.
        now: the time; left out, it is the clock's.
    """
    found = _AUTHORIZATION.match(headers.get("authorization", ""))
    if found is None:
        return "there is no signature"
    _, day, signed_region, signed_service, names, signature = found.groups()
    stamp = headers.get("x-amz-date", "")
    if (signed_region, signed_service) != (region, service) or not stamp.startswith(day):
        return f"the scope is {day}/{signed_region}/{signed_service}"
    made = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    if abs(((now or datetime.datetime.now(datetime.UTC)) - made).total_seconds()) > _MOST_SKEW_SECONDS:
        return "the signature is too old"
    signed = names.split(";")
    needed = {"host", "x-amz-date", *(name for name in headers if name.startswith("x-amz-")), *({"content-type"} & set(headers))}
    if signed != sorted(signed) or needed - set(signed):
        return f"not signed: {sorted(needed - set(signed))}"
    payload = hashlib.sha256(body).hexdigest()
    canonical_path = "/".join(quote(segment, safe="-_.~") for segment in path.split("/"))  # encoded a second time
    canonical_query = "&".join(sorted(query.split("&"))) if query else ""
    lines = [f"{name}:{re.sub(' +', ' ', headers[name].strip())}\n" for name in signed]
    canonical = "\n".join([method, canonical_path, canonical_query, "".join(lines), names, payload])
    scope = f"{day}/{region}/{service}/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    expected = hmac.digest(key, to_sign.encode(), "sha256").hex()
    return None if hmac.compare_digest(expected, signature) else "the signature does not match"
