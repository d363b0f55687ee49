"""What the server inside a sandbox must do, as checks that need an HTTP client and nothing of the server.

They pin what the Context API reads, and what this project needs beyond the stock container: nested files, concurrent
executions, deadlines, containment. Each check starts by deleting the session's files, so never point it at a sandbox
in use. By address: `python -m context_client.conformance.container --url http://…`
"""

import argparse
import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

import anyio
import httpx

ITEM_KEYS = frozenset({"name", "type", "contentType", "sizeInBytes", "lastModifiedAt"})

Check = Callable[[httpx.AsyncClient], Awaitable[None]]


async def run_check(name: str, client: httpx.AsyncClient) -> str | None:
    """Run one check; gives what is wrong, or None.

    Args:
        name: One of `CHECKS`.
        client: Speaks to the server; its base URL is the sandbox's.
    """
    try:
        await delete(client)
        await CHECKS[name](client)
    except (AssertionError, httpx.HTTPError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return None


async def execute(client: httpx.AsyncClient, code: object) -> dict[str, Any]:
    """Run code and give the `detail` of the answer, which must have its three keys whatever happens."""
    return _detail(await client.post("/code/execute", params=_query(), json={"code": code}))


async def upload(client: httpx.AsyncClient, name: str, content: bytes) -> httpx.Response:
    """Upload as the platform does: one part called `file`, name quoted, no content type of its own."""
    return await upload_raw(client, f'form-data; name=file; filename="{name}"'.encode(), content)


async def upload_raw(client: httpx.AsyncClient, disposition: bytes, content: bytes) -> httpx.Response:
    """Upload with a `Content-Disposition` of the caller's making."""
    boundary = uuid.uuid4().hex
    body = b"--%s\r\nContent-Disposition: %s\r\n\r\n%s\r\n--%s--\r\n" % (boundary.encode(), disposition, content, boundary.encode())
    headers = {"content-type": f'multipart/form-data; boundary="{boundary}"'}
    return await client.post("/files/upload", params=_query(), content=body, headers=headers)


async def listing(client: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    """List the files by name."""
    answer = await client.get("/files", params=_query())
    assert answer.status_code == 200, f"listing: HTTP {answer.status_code}"
    items = answer.json()["value"]
    assert len({item["name"] for item in items}) == len(items), "a name is listed twice"
    return {item["name"]: item for item in items}


async def download(client: httpx.AsyncClient, name: str) -> httpx.Response:
    """Download by name; the directory is never sent separately."""
    return await client.post("/files/download", params=_query(), json={"file_name": name})


async def delete(client: httpx.AsyncClient) -> None:
    """Delete all files as the platform does: no body, no content type."""
    answer = await client.post("/files/delete", params=_query())
    assert answer.is_success, f"delete: HTTP {answer.status_code}: {answer.text}"


async def gives_output_and_last_names(client: httpx.AsyncClient) -> None:
    """Printed text and the names of the last statement come back, each value as JSON text."""
    detail = await execute(client, "total = 40 + 2\nprint('done')\ntotal\n")
    assert detail == {"results": {"total": "42"}, "output": "done\n", "error": ""}, detail
    detail = await execute(client, "a, b = [1], {'x': None}")
    assert {name: json.loads(text) for name, text in detail["results"].items()} == {"a": [1], "b": {"x": None}}, detail
    detail = await execute(client, "odd = object()\nfine = 1\n[odd, fine]")
    assert detail["results"] == {"fine": "1"}, f"what is not JSON is left out: {detail}"
    assert (await execute(client, "print('no names')"))["results"] == {}, "no names must be an empty object"


async def answers_200_whatever_the_request_is(client: httpx.AsyncClient) -> None:
    """The caller loses the body of every other status, so bad requests are told inside too."""
    for body in (b"", b"{", b"[]", b"null", b'{"code": 7}', b'{"cod": "1"}', b"\xff\xfe"):
        answer = await client.post("/code/execute", content=body, headers={"content-type": "application/json"})
        assert _detail(answer)["error"], f"no error is told for {body!r}"


async def keeps_all_words_of_code_that_fails(client: httpx.AsyncClient) -> None:
    """What was printed before, what went to stderr, the sentence and the traceback: all of it arrives."""
    detail = await execute(client, "import sys\nprint('before')\nprint('aside', file=sys.stderr)\nraise ValueError('bad input')")
    assert detail["output"] == "before\n", detail
    for words in ("ValueError: bad input", "aside", "Traceback", "line 4"):
        assert words in detail["error"], f"{words!r} is missing in {detail['error']!r}"
    assert "SyntaxError" in (await execute(client, "a = ("))["error"]


async def tells_how_a_process_ended(client: httpx.AsyncClient) -> None:
    """Exit status and signal are told; a clean exit is a success."""
    assert "3" in (await execute(client, "import sys; sys.exit(3)"))["error"]
    assert "SIGKILL" in (await execute(client, "import os; os.kill(os.getpid(), 9)"))["error"]
    assert "7" in (await execute(client, "import os; os._exit(7)"))["error"]
    assert (await execute(client, "import sys; print(1); sys.exit()")) == {"results": {}, "output": "1\n", "error": ""}


async def is_a_program_of_its_own(client: httpx.AsyncClient) -> None:
    """Main guards run, event loops start, stdin is empty, and nothing stays for the next execution but files."""
    detail = await execute(client, "import asyncio, sys\nif __name__ == '__main__':\n  x = asyncio.run(asyncio.sleep(0, 5))\nx\n")
    assert detail["results"] == {"x": "5"}, detail
    await execute(client, "import json, os\njson.mark = 1\nos.environ['MARK'] = '1'\nopen('kept', 'w').write('1')")
    code = "import json, os, sys\nseen = [hasattr(json, 'mark'), 'MARK' in os.environ, open('kept').read(), sys.stdin.read()]\nseen"
    assert json.loads((await execute(client, code))["results"]["seen"]) == [False, False, "1", ""]


async def captures_subprocesses(client: httpx.AsyncClient) -> None:
    """What child processes print is output too."""
    detail = await execute(client, "import subprocess\nsubprocess.run(['sh', '-c', 'echo from a child'])")
    assert detail["output"] == "from a child\n", detail


async def does_not_wait_for_what_is_left_behind(client: httpx.AsyncClient) -> None:
    """A background process holds no answer up, even with the output open; whether it goes on is the server's choice."""
    started = time.monotonic()
    detail = await execute(client, "import subprocess\nsubprocess.Popen(['sleep', '90'])\nprint('gone')")
    assert detail["output"] == "gone\n", detail
    assert time.monotonic() - started < 90 / 2, "the answer waited for a background process"


async def runs_many_at_once(client: httpx.AsyncClient) -> None:
    """Twenty executions run at the same time, since each waits for all others; files are served before any of them ends."""
    meet = (
        "import glob, os, time\n"
        "open(f'here-{os.getpid()}', 'w').close()\n"
        "end = time.monotonic() + 60\n"
        "while time.monotonic() < end and not (len(glob.glob('here-*')) == 20 and os.path.exists('go')):\n"
        "    time.sleep(0.02)\n"
        "print(len(glob.glob('here-*')), os.path.exists('go'))\n"
    )
    details: list[dict[str, Any]] = []

    async def run() -> None:
        details.append(await execute(client, meet))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(run)
        await listing(client)
        await upload(client, "go", b"")
    assert [detail["output"] for detail in details] == ["20 True\n"] * 20, details


async def lists_nested_files_by_relative_name(client: httpx.AsyncClient) -> None:
    """Files of sub-directories are in the root listing, with every key the Context API insists on."""
    await execute(client, "import os\nos.makedirs('a/b')\nopen('a/b/same.json','w').write('[]')\nopen('same.json','w').write('[1]')")
    files = await listing(client)
    assert files.keys() == {"a/b/same.json", "same.json"}, files
    for name, item in files.items():
        assert item.keys() >= ITEM_KEYS, item
        assert item["type"] == "file", item
        assert isinstance(item["sizeInBytes"], int), item
        assert str(item["lastModifiedAt"]).endswith("Z"), item
        datetime.fromisoformat(item["lastModifiedAt"])
        assert len((await download(client, name)).content) == item["sizeInBytes"], item


async def survives_odd_files(client: httpx.AsyncClient) -> None:
    """Broken links, pipes, sockets, wrong dates and names that are no text do not break the listing."""
    await execute(
        client,
        "import os, socket\nos.symlink('/nowhere', 'broken')\nos.symlink('/etc/passwd', 'link')\nos.mkfifo('pipe')\n"
        "socket.socket(socket.AF_UNIX).bind('socket')\nopen('plain', 'w').close()\nos.utime('plain', (2**40, 2**40))\n"
        "open(b'\\xff.txt', 'w').write('odd')\nos.mkdir('closed', 0)\n",
    )
    files = await listing(client)
    assert files.keys() >= {"plain"}, files
    assert not files.keys() & {"broken", "link", "pipe", "socket"}, files
    for name in ("broken", "link", "pipe", "socket", "closed"):
        assert not (await download(client, name)).is_success, f"{name} must not be served"
    odd = next((name for name in files if name.endswith(".txt")), None)
    assert odd is None or (await download(client, odd)).content == b"odd", "a listed name must lead to its file"


async def keeps_every_byte(client: httpx.AsyncClient) -> None:
    """Empty, binary and large files come back as they went in."""
    for name, content in {"empty": b"", "binary.bin": bytes(range(256)) * 9, "large.bin": b"0123456789abcdef" * 262144}.items():
        assert (await upload(client, name, content)).is_success, name
        assert (await download(client, name)).content == content, name
        assert (await listing(client))[name]["sizeInBytes"] == len(content), name


async def understands_every_way_to_write_a_name(client: httpx.AsyncClient) -> None:
    """Bare, quoted, RFC 2047 and `filename*`; directories are made."""
    for disposition, name in {
        b"form-data; name=file; filename=bare.txt": "bare.txt",
        b'form-data; name="file"; filename="with blank (1).txt"': "with blank (1).txt",
        b'form-data; name="file"; filename="=?utf-8?B?w6Twn5mCLnR4dA==?="': "ä\N{SLIGHTLY SMILING FACE}.txt",
        b"form-data; name=file; filename=x; filename*=utf-8''%C3%A4%20b.txt": "ä b.txt",
        'form-data; name="file"; filename="ü\N{SLIGHTLY SMILING FACE}.md"'.encode(): "ü\N{SLIGHTLY SMILING FACE}.md",
        b'form-data; name="file"; filename="new/sub/dir.txt"': "new/sub/dir.txt",
    }.items():
        answer = await upload_raw(client, disposition, name.encode())
        assert answer.is_success, f"{disposition!r}: HTTP {answer.status_code}"
        assert (await download(client, name)).content == name.encode(), f"{disposition!r} is not {name!r}"


async def refuses_names_that_leave(client: httpx.AsyncClient) -> None:
    """Climbing, absolute, sibling, NUL and endless names are refused, with a status that is not 2xx."""
    for name in ("../x", "../data2x", "a/../../x", "/etc/passwd", "/mnt/data2x", "..", ".", "a//b", "n\0ul", "n" * 300, "d/" * 2500 + "x"):
        answer = await download(client, name)
        assert 400 <= answer.status_code < 500, f"download of {name[:20]!r}: HTTP {answer.status_code}"
        if "\0" not in name:
            answer = await upload(client, name, b"x")
            assert 400 <= answer.status_code < 500, f"upload of {name[:20]!r}: HTTP {answer.status_code}"
    assert not await listing(client)


async def follows_no_link(client: httpx.AsyncClient) -> None:
    """Neither directories nor files that are symbolic links lead out; an upload replaces a link, not its target."""
    place = (await execute(client, "import tempfile; print(tempfile.mkdtemp(), end='')"))["output"]
    code = (
        f"import os\nos.symlink({place!r}, 'door')\n"
        f"open({place!r} + '/target', 'w').write('old')\nos.symlink({place!r} + '/target', 'file')"
    )
    assert not (await execute(client, code))["error"]
    assert not (await upload(client, "door/x", b"x")).is_success
    assert not (await download(client, "door/target")).is_success
    assert not (await download(client, "file")).is_success
    await upload(client, "file", b"new")
    assert (await download(client, "file")).content == b"new"
    code = f"import os, shutil\nprint(open({place!r} + '/target').read(), os.listdir({place!r}))\nshutil.rmtree({place!r})"
    assert (await execute(client, code))["output"] == "old ['target']\n"


async def deletes_everything_again_and_again(client: httpx.AsyncClient) -> None:
    """Also trees without permissions, deep ones, and when there is nothing left."""
    await execute(
        client,
        "import os\nos.makedirs('locked/in')\nopen('locked/in/f','w').close()\nos.chmod('locked/in',0)\nos.chmod('locked',0)\n"
        "for _ in range(1500):\n  os.mkdir('d'); os.chdir('d')\n",
    )
    for _ in range(2):
        await delete(client)
        assert not await listing(client)
    assert (await execute(client, "import os\nprint(os.listdir('.'))"))["output"] == "[]\n"


async def delete_ends_what_runs(client: httpx.AsyncClient) -> None:
    """What runs is stopped and told so; a process that detached itself stays."""
    spawn = "subprocess.Popen(['sleep', '60'], stdin=-3, stdout=-3, stderr=-3, start_new_session=True).pid"
    detached = int((await execute(client, f"import subprocess\nprint({spawn})"))["output"])
    details: list[dict[str, Any]] = []

    async def run() -> None:
        details.append(await execute(client, "import time; time.sleep(60)"))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(0.5)
        await delete(client)
    assert details[0]["error"], f"the execution was not stopped: {details}"
    seen = await execute(client, f"import os\nos.kill({detached}, 9)")
    assert not seen["error"], f"the detached process must live on: {seen}"


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        check.__name__: check
        for check in (
            gives_output_and_last_names,
            answers_200_whatever_the_request_is,
            keeps_all_words_of_code_that_fails,
            tells_how_a_process_ended,
            is_a_program_of_its_own,
            captures_subprocesses,
            does_not_wait_for_what_is_left_behind,
            runs_many_at_once,
            lists_nested_files_by_relative_name,
            survives_odd_files,
            keeps_every_byte,
            understands_every_way_to_write_a_name,
            refuses_names_that_leave,
            follows_no_link,
            deletes_everything_again_and_again,
            delete_ends_what_runs,
        )
    }
)
"""All checks by name, in an order that fails on the simple things first."""


def _query() -> dict[str, str]:
    """Parameters every call of the platform carries and no server may stumble over."""
    return {"api-version": "2024-10-02-preview", "identifier": "code-conformance"}


def _detail(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, f"execute: HTTP {answer.status_code}"
    detail: dict[str, Any] = answer.json()["detail"]
    assert detail.keys() >= {"results", "output", "error"}, detail
    assert isinstance(detail["output"], str), detail
    assert isinstance(detail["error"], str), detail
    return detail


async def _run_all(url: str, names: list[str]) -> int:
    failed = 0
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        for name in names:
            problem = await run_check(name, client)
            failed += problem is not None
            sys.stdout.write(f"{'ok  ' if problem is None else 'FAIL'} {name}{f': {problem}' if problem else ''}\n")
    return 1 if failed else 0


def main() -> int:
    """Run the checks named on the command line; 0 if all hold."""
    parser = argparse.ArgumentParser(prog="context_client.conformance.container", description=__doc__)
    parser.add_argument("--url", required=True, help="base URL of the sandbox's server; its files are deleted")
    parser.add_argument("--only", action="append", choices=sorted(CHECKS), help="run this check; repeatable")
    asked = parser.parse_args()
    return anyio.run(_run_all, asked.url, asked.only or list(CHECKS))


if __name__ == "__main__":
    sys.exit(main())
