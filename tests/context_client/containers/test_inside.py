"""What hostile code finds inside a container: nothing to gain, and nowhere to write but its own places."""

import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from context_client.sandboxes.limits import WRITABLE_PLACES

pytestmark = pytest.mark.anyio

Run = Callable[[str], Awaitable[dict[str, Any]]]


async def test_it_is_nobody_and_may_nothing(run: Run) -> None:
    """A user of its own, no capability in any set, no way to get one, a filter of system calls."""
    code = "import os\nstatus = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines())\n"
    code += "ids = [*os.getresuid(), *os.getresgid()]\ngroups = os.getgroups()\nids, groups, status\n"
    results = (await run(code))["results"]
    assert json.loads(results["ids"]) == [10001] * 6
    assert 0 not in json.loads(results["groups"])
    status = json.loads(results["status"])
    assert {status[name].strip("0") for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {""}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


async def test_there_is_no_network(run: Run) -> None:
    code = "import os, socket\nlinks = os.listdir('/sys/class/net')\nroutes = open('/proc/net/route').read().splitlines()[1:]\n"
    code += "try:\n  socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError as error:\n  problem = type(error).__name__\n"
    results = (await run(code + "links, routes, problem"))["results"]
    assert json.loads(results["links"]) == ["lo"]
    assert json.loads(results["routes"]) == []
    assert json.loads(results["problem"]) == "OSError"


async def test_only_its_places_can_be_written(run: Run) -> None:
    """Every directory of the whole tree is tried."""
    code = """
import os
written = set()
for folder, _, _ in os.walk('/'):
    if folder.startswith(('/proc', '/sys')):
        continue
    try:
        path = os.path.join(folder, 'trial-of-writing')
        open(path, 'w').close()
        os.unlink(path)
        written.add(folder)
    except OSError:
        pass
tops = sorted(folder for folder in written if os.path.dirname(folder) not in written)
tops
"""
    tops = set(json.loads((await run(code))["results"]["tops"]))
    assert tops - {"/dev/mqueue"} == WRITABLE_PLACES.keys()


async def test_every_place_has_its_size(run: Run) -> None:
    code = f"import os\nsizes = {{p: os.statvfs(p).f_blocks * os.statvfs(p).f_frsize for p in {sorted(WRITABLE_PLACES)}}}\nsizes"
    assert json.loads((await run(code))["results"]["sizes"]) == dict(WRITABLE_PLACES)


FILLING = """
import os
file = open('/home/agent/big', 'wb')
try:
    for _ in range(100):
        file.write(bytes(1 << 20))
except OSError as error:
    problem = error.errno
os.unlink('/home/agent/big')
open('/workspace/other', 'w').close()
problem
"""


async def test_a_full_place_hurts_only_itself(run: Run) -> None:
    assert json.loads((await run(FILLING))["results"]["problem"]) == 28


WAYS = """
import os
met = os.listdir('/run/service')
lines = [line.split() for line in open('/proc/net/unix').read().splitlines()[1:]]
listening = [line[7] for line in lines if len(line) > 7 and int(line[3], 16) & 0x10000]
engine = [name for name in ('/var/run/docker.sock', '/run/podman/podman.sock') if os.path.exists(name)]
met, listening, engine
"""


async def test_nothing_inside_leads_to_the_server_or_the_engine(run: Run) -> None:
    """Neither a socket by path nor one by abstract name; the handshake's is gone."""
    results = (await run(WAYS))["results"]
    assert (json.loads(results["met"]), json.loads(results["engine"])) == ([], [])
    assert not [name for name in json.loads(results["listening"]) if not name.startswith("/run/claude-code/")]


async def test_no_process_knows_a_secret(run: Run) -> None:
    """The first process was started with nothing of the service's environment."""
    text = (await run("print(open('/proc/1/environ').read(), open('/proc/1/cmdline').read())"))["output"]
    assert text
    assert not [name for name in ("KEY", "TOKEN", "SECRET", "example.test", "code-shared") if name in text]
    assert not [value for name, value in os.environ.items() if len(value) > 20 and value in text and name != "PATH"]


FORKING = """
import os, time
n = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
        n += 1
except OSError:
    pass
n
"""


async def test_too_many_processes_are_refused(run: Run) -> None:
    assert 100 < json.loads((await run(FORKING))["results"]["n"]) < 512
