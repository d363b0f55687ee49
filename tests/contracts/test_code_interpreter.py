"""The platform's Code Interpreter tool on our sandbox: its own calls, what it reads from them, and what the stock container gets wrong.

The tool empties the session's files, makes records of what is there, runs code the model wrote, makes records again, and tells the model
one text. Here it is played against the embedded Context API with real local sandboxes.
"""

import importlib.util
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

from context_client import ContextClient, EmbeddedContext, ExecutionResult, FileRecord, UserIdentity, connect
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME
from context_client.embedded.settings import EmbeddedSettings
from context_client.sandboxes import LocalSandboxes, LocalSandboxSettings

pytestmark = pytest.mark.anyio

needs_pandas = pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is part of the image's data variant")

TABLE = """
class DataFrame:
    def to_csv(self, path): open(path, 'w').write(',a,b\\n0,1,x\\n')
    def head(self, rows): return self
    def to_json(self, orient): return '{"schema": {}, "data": [{"index": 0, "a": 1, "b": "x"}]}'
    def to_dict(self, orient): return [{"a": 1, "b": "x"}]
class Series:
    def to_dict(self): return {0: 1.5, 1: float('nan')}
class NAType: pass
"""
"""Stands for pandas where it is not installed; the encoder knows its values by what they can do."""

PIXEL = (
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100c9fe92ef"
    "0000000049454e44ae426082"
)
"""An image of one pixel, as PNG."""


@dataclass(frozen=True)
class Told:
    """What one call of the tool gives."""

    text: str
    """What the model is told."""

    execution: ExecutionResult
    """What the text was made from."""

    records: tuple[FileRecord, ...]
    """Files the user gets."""

    def names(self) -> list[str]:
        return sorted(record.file_name for record in self.records)


class Tool:
    """The tool of one user in one conversation."""

    def __init__(self, client: ContextClient, upn: str = "one@example.test") -> None:
        self.client = client
        self.user = UserIdentity(upn=upn)
        self.conversation = str(uuid.uuid4())

    async def session(self, context: str = "Code") -> str:
        session = await self.client.create_code_session(
            self.user,
            agent_name="analyst",
            conversation_id=self.conversation,
            context=context,
            endpoint_provider=DEFAULT_PROVIDER_NAME,
        )
        return session.session_id

    async def put(self, name: str, content: bytes) -> None:
        await self.client.upload_conversation_file(self.user, self.conversation, "analyst", name, content)

    async def run(self, code: str, *file_names: str) -> Told:
        """Do what the tool does."""
        session = await self.session()
        upload = await self.client.upload_to_session(self.user, session, file_names)
        before = await self.client.download_from_session(self.user, session, upload.operation_id)
        execution = await self.client.execute_code(self.user, session, code)
        after = await self.client.download_from_session(self.user, session, upload.operation_id)
        assert not after.errors
        new = tuple(record for record in after.file_records.values() if record.id not in before.file_records)
        return Told(_told(execution, new), execution, new)


def _told(execution: ExecutionResult, records: tuple[FileRecord, ...]) -> str:
    """The tool's choice: an error hides the result, a result hides the output, and blank output becomes a list of files."""
    if execution.status == "Failed":
        text = execution.execution_result + execution.error_output
    elif execution.error_output.strip():
        text = execution.error_output
    else:
        text = execution.standard_output.strip() if execution.execution_result == "{}" else execution.execution_result
    return text if text.strip() else ", ".join(record.file_name for record in records)


@pytest.fixture(scope="module")
async def client(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ContextClient]:
    server = EmbeddedSettings(folder=tmp_path_factory.mktemp("context"), instance_id="i", api_key=SecretStr("k"))
    async with LocalSandboxes(LocalSandboxSettings(prewarm_runner=True)) as sandboxes:
        async with connect(EmbeddedContext(server=server), providers={DEFAULT_PROVIDER_NAME: sandboxes}) as client:
            yield client


@pytest.fixture(scope="module")
def tool(client: ContextClient) -> Tool:
    """One conversation for all tests: each run of the tool begins with an empty store."""
    return Tool(client)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        pytest.param("total = 40 + 2\ntotal", '{"total": "42"}', id="a bare name"),
        pytest.param("a, b = 1, 'x'\na, b", '{"a": "1", "b": "\\"x\\""}', id="a tuple of names"),
        pytest.param("a = b = [1]", '{"a": "[1]", "b": "[1]"}', id="an assignment"),
        pytest.param("x: int = 5", '{"x": "5"}', id="an annotated assignment"),
        pytest.param("total = 1\nprint('done')", "done", id="a last statement without names"),
        pytest.param("total = 1\ntotal + 1", "", id="an expression is no name"),
        pytest.param("d = {}\nd['k'] = 1", "", id="a target that is no name"),
        pytest.param("print('a')\nprint('b')", "a\nb", id="output"),
        pytest.param("import warnings\nwarnings.warn('old')\nprint('fine')\nx = 1\nx", '{"x": "1"}', id="a warning hides nothing"),
    ],
)
async def test_what_the_model_is_told(tool: Tool, code: str, text: str) -> None:
    told = await tool.run(code)
    assert told.execution.status == "Succeeded"
    assert (json.loads(told.text), told.names()) == (json.loads(text), []) if text.startswith("{") else told.text == text


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        pytest.param("datetime.datetime(2026, 1, 2, 3, 4)", "2026-01-02T03:04:00", id="datetime"),
        pytest.param("datetime.timedelta(hours=1)", "1:00:00", id="timedelta"),
        pytest.param("decimal.Decimal('1.10')", 1.1, id="decimal"),
        pytest.param("decimal.Decimal('0.12345678901234567890')", "0.12345678901234567890", id="decimal that a number would cut"),
        pytest.param("uuid.UUID(int=1)", "00000000-0000-0000-0000-000000000001", id="uuid"),
        pytest.param("{10, 9}", [9, 10], id="set"),
        pytest.param("{1, 'a'}", ["a", 1], id="set of several kinds"),
        pytest.param("b'ab\\xff'", "ab\N{REPLACEMENT CHARACTER}", id="bytes"),
        pytest.param("[float('nan'), float('-inf'), 1.5]", [None, None, 1.5], id="numbers that are none"),
        pytest.param("{(1, 2): 'a', datetime.date(2026, 1, 2): 'b', 3: 'c', None: 'd'}", ["(1, 2)", "2026-01-02", "3", "null"], id="keys"),
        pytest.param("{'a': 1}.keys()", ["a"], id="keys of a dict"),
        pytest.param("range(3)", [0, 1, 2], id="range"),
        pytest.param("pandas.Series()", {"0": 1.5, "1": None}, id="series"),
        pytest.param("[pandas.NAType()]", [None], id="missing value"),
        pytest.param("{'t': pandas.DataFrame()}", {"t": [{"a": 1, "b": "x"}]}, id="table inside"),
    ],
)
async def test_values_of_data_code_are_json_inside_a_string(tool: Tool, value: str, meaning: object) -> None:
    await tool.put("pandas.txt", TABLE.encode())
    imports = "import datetime, decimal, os, uuid\nos.rename('pandas.txt', 'pandas_.py')\nimport pandas_ as pandas\n"
    rename = "for kind in (pandas.DataFrame, pandas.Series, pandas.NAType): kind.__module__ = 'pandas'\n"
    told = await tool.run(f"{imports}{rename}value = {value}", "pandas.txt")
    found = json.loads(json.loads(told.text)["value"])
    assert (list(found) if isinstance(found, dict) and isinstance(meaning, list) else found) == meaning


async def test_a_table_is_a_file_and_a_summary(tool: Tool) -> None:
    await tool.put("pandas.txt", TABLE.encode())
    make = (
        "import os\nos.rename('pandas.txt', 'p.py')\nimport p\np.DataFrame.__module__ = 'pandas'\n"
        "sales = p.DataFrame()\nos.remove('p.py')\nsales"
    )
    told = await tool.run(make, "pandas.txt")
    summary = json.loads(json.loads(told.text)["sales"])
    assert (summary["type"], summary["preview"]) == ("dataframe", [{"": 0, "a": 1, "b": "x"}])
    (name,) = told.names()
    assert name.startswith("sales_")
    assert name.endswith(".csv")
    assert name in summary["details"]


@pytest.mark.parametrize(
    ("code", "results", "words"),
    [
        pytest.param("odd = object()\nfine = 1\nodd, fine", {"fine": "1"}, "'odd', a value of type 'object'", id="no form in JSON"),
        pytest.param("odd = []\nodd.append(odd)\nodd", {}, "nested more than 100 deep", id="no end"),
        pytest.param("odd = 'x' * (17 << 20)\nodd", {}, "longer than fits", id="too long"),
        pytest.param("class Figure:\n  def savefig(self, name): pass\nodd = Figure()\nodd", {}, "odd.savefig('odd.png')", id="a figure"),
    ],
)
async def test_what_cannot_be_shown_is_left_out_and_told(tool: Tool, code: str, results: dict[str, str], words: str) -> None:
    """The stock container says nothing, and the model believes that there was nothing."""
    told = await tool.run(f"print('begun')\n{code}")
    assert json.loads(told.execution.execution_result) == results
    assert told.execution.error_output == ""
    output = told.execution.standard_output.splitlines()
    assert output[0] == "begun"
    assert output[1].startswith("[not shown: 'odd'")
    assert words in output[1]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        pytest.param("raise ValueError('bad input')", "ValueError: bad input", id="exception"),
        pytest.param("a = (", "SyntaxError", id="syntax"),
        pytest.param("import sys; sys.exit(3)", "exit status 3", id="exit"),
        pytest.param("import os; os._exit(4)", "exit status 4", id="hard exit"),
        pytest.param("import os; os.abort()", "SIGABRT", id="crash"),
        pytest.param("input()", "EOFError", id="input"),
        pytest.param("import no_such_package", "ModuleNotFoundError", id="missing package"),
    ],
)
async def test_a_failure_is_told_with_what_was_printed_before(tool: Tool, code: str, words: str) -> None:
    """The stock container loses the output, and `sys.exit` its server's answer."""
    told = await tool.run(f"print('before', flush=True)\n{code}" if code != "a = (" else code)
    assert words in told.text
    assert told.execution.status == "Succeeded"
    assert told.execution.standard_output == ("" if code == "a = (" else "before\n")


async def test_files_of_a_call_are_the_users(tool: Tool) -> None:
    """Nested ones too, which make the stock container's listing fail; a file of the same name elsewhere is another one."""
    code = (
        "import os\nos.makedirs('out/deep')\nopen('out/deep/a.json', 'w').write('[1]')\nopen('a.json', 'w').write('[]')\n"
        f"open('plot.png', 'wb').write(bytes.fromhex({PIXEL!r}))"
    )
    told = await tool.run(code)
    assert told.names() == ["a.json", "out/deep/a.json", "plot.png"]
    assert told.text in {", ".join(order) for order in (told.names(), [record.file_name for record in told.records])}
    by_name = {record.file_name: record for record in told.records}
    assert by_name["plot.png"].content_type == "image/png"
    content = await tool.client.file_content(tool.user, by_name["out/deep/a.json"].id)
    assert content.content == b"[1]"


async def test_an_input_is_read_and_the_next_call_begins_empty(tool: Tool) -> None:
    await tool.put("in.csv", b"a,b\n1,2\n")
    first = await tool.run("import csv\nrows = list(csv.DictReader(open('in.csv')))\nopen('made.txt', 'w').write('x')\nrows", "in.csv")
    second = await tool.run("import os\nfound = os.listdir('.')\nfound")
    assert json.loads(json.loads(first.text)["rows"]) == [{"a": "1", "b": "2"}]
    assert first.names() == ["made.txt"]
    assert json.loads(json.loads(second.text)["found"]) == []


async def test_between_executions_files_stay_and_nothing_else(tool: Tool) -> None:
    """The stock container keeps imported modules and environment variables too, by accident of running code in its server."""
    session = await tool.session()
    await tool.client.upload_to_session(tool.user, session, [])
    await tool.client.execute_code(
        tool.user, session, "import json, os\nx = 1\njson.x = 1\nos.environ['X'] = '1'\nopen('x', 'w').write('1')"
    )
    code = "import json, os\nseen = ['x' in globals(), hasattr(json, 'x'), 'X' in os.environ, os.path.exists('x')]\nseen"
    result = await tool.client.execute_code(tool.user, session, code)
    assert json.loads(json.loads(result.execution_result)["seen"]) == [False, False, False, True]


async def test_code_is_a_program_of_its_own(tool: Tool) -> None:
    """Main guards run, event loops start, and what child processes print is output."""
    code = (
        "import asyncio, os, subprocess\nif __name__ == '__main__':\n    asyncio.run(asyncio.sleep(0))\n    print('main', flush=True)\n"
        "subprocess.run(['echo', 'child'])\nos.system('echo shell')"
    )
    assert (await tool.run(code)).text == "main\nchild\nshell"


async def test_the_file_store_comes_back_when_code_removes_it(tool: Tool) -> None:
    """In the stock container nothing works after that."""
    await tool.run("import shutil\nshutil.rmtree('/mnt/data', ignore_errors=True)")
    assert (await tool.run("open('a.txt', 'w').write('x')\nimport os\nprint(os.getcwd())")).text == "/mnt/data"


async def test_one_conversation_does_not_wait_for_another(client: ContextClient) -> None:
    """Nor do two executions in one; the stock container blocks for everybody while code runs."""
    slow, quick = Tool(client), Tool(client)
    await quick.run("1")
    order: list[str] = []

    async def run(name: str, tool: Tool, code: str) -> None:
        await tool.client.execute_code(tool.user, await tool.session(), code)
        order.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(run, "slow", slow, "import time; time.sleep(3)")
        group.start_soon(run, "beside it", slow, "import time; time.sleep(0.5)")
        group.start_soon(run, "elsewhere", quick, "1")
    assert order[-1] == "slow"


async def test_the_tool_and_an_agent_of_one_conversation_do_not_meet(tool: Tool) -> None:
    """They are two sessions, so two sandboxes: no file, no process, no workspace of the one is in the other."""
    agent = await tool.session("ClaudeCode")
    await tool.client.upload_to_session(tool.user, agent, [])
    mark = "open('/workspace/secret.txt', 'w').write('x')\nopen('/mnt/data/secret.txt', 'w').write('x')"
    sleep = "import subprocess\nsubprocess.Popen(['sleep', '4711'], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)"
    assert (await tool.client.execute_code(tool.user, agent, f"{mark}\n{sleep}")).error_output == ""
    code = (
        "import glob, os\ncommands = [open(path, 'rb').read() for path in glob.glob('/proc/[0-9]*/cmdline')]\n"
        "seen = [os.listdir('/workspace'), os.listdir('.'), sum(b'4711' in command and b'sleep' in command for command in commands)]\nseen"
    )
    told = await tool.run(code)
    assert json.loads(json.loads(told.text)["seen"]) == [[], [], 0]


async def test_nothing_of_the_runner_is_among_the_files(tool: Tool) -> None:
    """A runner is at work in the same sandbox, and a direct call was made: the user gets what the code wrote."""
    order = (
        "import base64, json\nfrom runner_image.direct.desk import main\n"
        "main(base64.urlsafe_b64encode(json.dumps({'op': 'status'}).encode()).decode())"
    )
    wait = "import os, time\nwhile not os.path.exists('/run/claude-code/runner.sock'): time.sleep(0.05)\n"
    told = await tool.run(f"{wait}{order}\nopen('mine.txt', 'w').write('x')")
    assert told.execution.error_output == ""
    assert told.names() == ["mine.txt"]


@needs_pandas
@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        pytest.param("np.int64(3)", 3, id="numpy scalar"),
        pytest.param("np.array([[1, 2], [3, 4]])", [[1, 2], [3, 4]], id="numpy array"),
        pytest.param("np.array([1.5, np.nan])", [1.5, None], id="array with a missing value"),
        pytest.param("np.dtype('float64')", "float64", id="numpy dtype"),
        pytest.param("np.dtype('O')", "object", id="object dtype"),
        pytest.param("[pd.Timestamp('2026-01-02'), pd.NaT, pd.NA]", ["2026-01-02T00:00:00", None, None], id="times and gaps"),
        pytest.param("pd.Series([1.5, None])", {"0": 1.5, "1": None}, id="series"),
        pytest.param("pd.Series([1], index=pd.to_datetime(['2026-01-02']))", {"2026-01-02T00:00:00": 1}, id="series by date"),
        pytest.param("pd.Index(['a', 'b'])", ["a", "b"], id="index"),
        pytest.param("pd.Period('2026-01')", "2026-01", id="period"),
        pytest.param("{'t': pd.DataFrame({'a': [1]})}", {"t": [{"a": 1}]}, id="table inside"),
    ],
)
def test_values_of_the_real_packages(value: str, meaning: object) -> None:
    from runner_image.server.plain import to_json

    names: dict[str, Any] = {}
    exec(f"import numpy as np, pandas as pd\nvalue = {value}", names)
    assert json.loads(to_json(names["value"])) == meaning


@needs_pandas
@pytest.mark.parametrize(
    "table",
    [
        pytest.param("pd.DataFrame({'a': range(30)})", id="plain"),
        pytest.param("pd.DataFrame([[1, 2]], columns=['a', 'a'])", id="equal names"),
        pytest.param("pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([('a', 'b')]))", id="columns of two levels"),
        pytest.param("pd.DataFrame({'a': [1]}).groupby('a').agg({'a': ['sum', 'mean']})", id="grouped"),
    ],
)
def test_tables_of_the_real_packages(table: str, tmp_path: Path) -> None:
    from runner_image.server.results import encode_results

    names: dict[str, Any] = {}
    exec(f"import pandas as pd\ntable = {table}", names)
    encoded = encode_results(("table",), names, tmp_path)
    assert not encoded.hints
    summary = json.loads(encoded.results["table"])
    assert len(summary["preview"]) == 10 if table.endswith("(30)})") else summary["preview"]
    assert [path.name.partition("_")[0] for path in tmp_path.iterdir()] == ["table"]
