"""Holds a pool against the baseline: `python -m context_client.pools.parity --url … --token …`.

Replays what `baseline.json` claims against a real pool, or against the emulator, and prints one row for each claim. Every
session it begins holds a slot for the pool's cooldown, so it needs a few free ones; `--fill` takes all of them on purpose.
Point it at a pool whose container speaks the protocol, and that nobody needs meanwhile.
"""

import argparse
import os
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import anyio
import httpx

from context_client.pools.baseline import fact, facts
from context_client.pools.judge import error_code

TOKEN = "POOL_TOKEN"
"""Environment: the token, where the other users of a machine do not see it."""

_CALL_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """What came of one claim."""

    claim: str
    """Name of the fact."""

    expected: str
    """What the baseline says."""

    seen: str
    """What the pool did."""

    verdict: Literal["same", "differs", "not tried"]
    """Whether that is the same."""


class Prober:
    """Asks one pool."""

    def __init__(self, http: httpx.AsyncClient, token: str, *, fill: int = 0, heavy: bool = False) -> None:
        self._http = http
        self._token = token
        self.fill = fill
        """How many sessions to begin until the pool must be full; 0 leaves that out."""
        self.heavy = heavy
        """Whether to send more than the upload limit."""
        self.identifier = new_identifier()
        """A session for the checks that need one."""

    async def ask(self, path: str = "/files", *, method: str = "GET", token: str | None = None, **more: Any) -> httpx.Response:
        """Send one request, with the right token, identifier and version unless told otherwise."""
        given = self._token if token is None else token
        headers = {"Authorization": f"Bearer {given}"} if given else {}
        params = {"identifier": self.identifier, "api-version": "2024-10-02-preview"} | more.pop("params", {})
        present = {name: value for name, value in params.items() if value is not None}
        return await self._http.request(method, path, params=present, headers=headers, **more)

    async def execute(self, code: str, identifier: str) -> str:
        """Run code in a session; gives what it printed."""
        answer = await self.ask("/code/execute", method="POST", params={"identifier": identifier}, json={"code": code})
        return str(answer.raise_for_status().json()["detail"]["output"]).strip()


def new_identifier() -> str:
    """Make an identifier that no pool knows."""
    return f"parity-{secrets.token_hex(8)}"


Check = Callable[[Prober], Awaitable[Row]]


async def check_pool(prober: Prober) -> list[Row]:
    """Replay every claim that can be replayed, one after the other."""
    rows = []
    for name, check in CHECKS.items():
        try:
            rows.append(await check(prober))
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            rows.append(Row(claim=name, expected="an answer", seen=f"{type(error).__name__}: {error}"[:80], verdict="differs"))
    return rows


async def _token_missing(prober: Prober) -> Row:
    return _row("token.refused_status", (await prober.ask(token="")).status_code)


async def _token_wrong(prober: Prober) -> Row:
    return _row("token.refused_status", (await prober.ask(token="not.a.token")).status_code)


async def _identifier_short(prober: Prober) -> Row:
    return await _identifier(prober, "a" * (int(fact("identifier.shortest")) - 1), "identifier.length_code")


async def _identifier_long(prober: Prober) -> Row:
    return await _identifier(prober, "a" * (int(fact("identifier.longest")) + 1), "identifier.length_code")


async def _identifier_character(prober: Prober) -> Row:
    return await _identifier(prober, f"{new_identifier()}_x", "identifier.character_code")


async def _identifier_missing(prober: Prober) -> Row:
    return await _identifier(prober, None, "identifier.missing_code")


async def _identifier(prober: Prober, identifier: str | None, claim: str) -> Row:
    answer = await prober.ask(params={"identifier": identifier})
    expected = f"{fact('identifier.refused_status')} {fact(claim)}"
    return _row(claim, f"{answer.status_code} {_code(answer)}", expected)


async def _versions(prober: Prober) -> Row:
    accepted = fact("api_version.accepted")
    taken = [version for version in accepted if (await prober.ask(params={"api-version": version})).is_success]
    return _row("api_version.accepted", f"{len(taken)} of {len(accepted)}", f"{len(accepted)} of {len(accepted)}")


async def _version_missing(prober: Prober) -> Row:
    needs = not (await prober.ask(params={"api-version": None})).is_success
    return _row("api_version.custom_container_needs_it", needs)


async def _version_unknown(prober: Prober) -> Row:
    return _row("api_version.unknown_status", (await prober.ask(params={"api-version": "1999-01-01"})).status_code)


async def _any_path(prober: Prober) -> Row:
    """The container's own words for a path that it does not have: the pool has others."""
    answer = await prober.ask(f"/no/such/{secrets.token_hex(4)}")
    return _row("routing.every_path_is_forwarded", answer.status_code == 404 and not error_code(answer.headers, answer.content))


async def _management(prober: Prober) -> Row:
    answer = await prober.ask("/listSessions")
    return _row("routing.management_calls_of_custom_containers", answer.is_success)


async def _sessions(prober: Prober) -> Row:
    """A session is kept under its identifier, and another identifier is another sandbox."""
    other = new_identifier()
    await prober.execute("open('parity-mark', 'w').write('1')", prober.identifier)
    kept = await prober.execute("import os; print(os.path.exists('parity-mark'))", prober.identifier)
    apart = await prober.execute("import os; print(os.path.exists('parity-mark'))", other)
    return _row("sessions are kept, and apart", f"{kept} {apart}", "True False")


async def _timing(prober: Prober) -> Row:
    answer = await prober.ask()
    return _row("timing.custom_containers_send_them", "x-ms-overall-execution-time" in answer.headers)


async def _upload(prober: Prober) -> Row:
    if not prober.heavy:
        return Row(claim="limit.upload_status", expected=str(fact("limit.upload_status")), seen="needs --heavy", verdict="not tried")
    content = b"\0" * (int(fact("limit.upload_bytes")) + 1)
    return _row("limit.upload_status", (await prober.ask("/files/upload", method="POST", content=content)).status_code)


async def _full(prober: Prober) -> Row:
    expected = f"{fact('capacity.full_status')} {fact('capacity.full_code')}"
    if not prober.fill:
        return Row(claim="capacity.full_status", expected=expected, seen="needs --fill", verdict="not tried")
    for _ in range(prober.fill):
        began = time.monotonic()
        answer = await prober.ask(params={"identifier": new_identifier()})
        if not answer.is_success:
            seen = f"{answer.status_code} {_code(answer)}"
            note = f" after {time.monotonic() - began:.2f} s, Retry-After {answer.headers.get('retry-after', 'none')}"
            row = _row("capacity.full_status", seen, expected)
            return Row(claim=row.claim, expected=expected, seen=seen + note, verdict=row.verdict)
    return Row(claim="capacity.full_status", expected=expected, seen=f"not full after {prober.fill}", verdict="not tried")


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "token missing": _token_missing,
        "token wrong": _token_wrong,
        "identifier short": _identifier_short,
        "identifier long": _identifier_long,
        "identifier character": _identifier_character,
        "identifier missing": _identifier_missing,
        "versions": _versions,
        "version missing": _version_missing,
        "version unknown": _version_unknown,
        "any path": _any_path,
        "management": _management,
        "sessions": _sessions,
        "timing": _timing,
        "upload": _upload,
        "full": _full,
    }
)
"""All checks, the one that fills the pool last."""


def as_table(rows: Sequence[Row]) -> str:
    """Write rows for people, with how well each claim was known before."""
    known = {name: one.status for name, one in facts().items()}
    cells = [("claim", "known as", "expected", "seen", "")]
    cells += [(row.claim, known.get(row.claim, ""), row.expected, row.seen, row.verdict) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(5)]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells) + "\n"


def _row(claim: str, seen: object, expected: object = None) -> Row:
    wanted = fact(claim) if expected is None else expected
    return Row(claim=claim, expected=str(wanted), seen=str(seen), verdict="same" if str(seen) == str(wanted) else "differs")


def _code(answer: httpx.Response) -> str:
    """The pool's name for its error in its own spelling."""
    try:
        said = answer.json()
        return str(said["error"]["code"] if "error" in said else said["code"])
    except (ValueError, KeyError, TypeError):
        return str(answer.headers.get("x-ms-error-code", "without a code"))


async def _run(url: str, token: str, fill: int, heavy: bool) -> int:
    async with httpx.AsyncClient(base_url=url.rstrip("/"), timeout=_CALL_SECONDS) as http:
        rows = await check_pool(Prober(http, token, fill=fill, heavy=heavy))
    sys.stdout.write(as_table(rows))
    return 1 if any(row.verdict == "differs" for row in rows) else 0


def main() -> int:
    """Check the pool that the command line names; 0 if it is as the baseline says."""
    parser = argparse.ArgumentParser(prog="context_client.pools.parity", description="Hold a session pool against the baseline.")
    parser.add_argument("--url", required=True, help="the pool's management endpoint")
    parser.add_argument("--token", default="", help=f"a token for https://dynamicsessions.io; better in {TOKEN}, which others do not see")
    parser.add_argument("--fill", type=int, default=0, metavar="N", help="begin up to N sessions until the pool is full")
    parser.add_argument("--heavy", action="store_true", help="also send a body over the upload limit")
    given = parser.parse_args()
    token = given.token or os.environ.get(TOKEN, "")
    if not token:
        parser.error(f"give a token: --token, or the environment variable {TOKEN}")
    return anyio.run(_run, given.url, token, given.fill, given.heavy)


if __name__ == "__main__":
    sys.exit(main())
