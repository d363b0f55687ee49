"""What the documents show works as shown. How to mark a block: CONTRIBUTING.md, section Documents."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestration_service.commands import Unclear, read_command
from orchestration_service.errors import ServiceError
from orchestration_service.planning import Planned
from tests.docs.examples import DOCUMENTS, ROOT, Example, examples, of_text
from tests.docs.model_examples import hold_a_key_of_aws, lead_to_a_model, price_models, refer_to_models
from tests.orchestration_service.serving import INSTANCE, KEY, served
from tests.orchestration_service.test_agent_settings import MODEL, agent, planned
from tests.stage import packed
from workflow_schemas.property_reading import flatten, read_properties

EXAMPLES = examples()
PAGE, FIXED = "<h1>Helo</h1>\n", "<h1>Hello</h1>\n"


def read_settings(example: Example, _: Path) -> None:
    """Properties of a workflow: all are understood, and nothing is remarked."""
    reading = read_properties(json.loads(example.text))
    assert (reading.remarks, reading.refusals) == ((), ())
    assert reading.properties.model_fields_set - {"schema_version"}


def read_settings_that_do_not_fit(example: Example, _: Path) -> None:
    """Properties of which each is remarked."""
    given = json.loads(example.text)
    reading = read_properties(given)
    assert [name for name in given if name not in " ".join((*reading.remarks, *reading.refusals))] == []


def set_model_parameters(example: Example, _: Path) -> None:
    """Parameters of the main model's entry with our settings among them."""
    given = json.loads(example.text)
    of_agent = agent(own={})
    of_agent["workflow"]["resource_object_ids"][MODEL["object_id"]]["properties"]["model_parameters"] = given
    assert_in_force(planned(of_agent), {"claude_code": given["claude_code"]})


def set_tool_properties(example: Example, _: Path) -> None:
    """Properties of the settings tool."""
    given = json.loads(example.text)
    assert_in_force(planned(agent(own={}, tool=given)), given)


def assert_in_force(plan: Planned, settings: Mapping[str, Any]) -> None:
    assert plan.remarks == ()
    assert plan.properties.model_fields_set >= set(flatten(settings))


def say_in_the_chat(example: Example, _: Path) -> None:
    """Words for the service, one command a line."""
    for line in example.text.splitlines():
        command = read_command(line)
        assert command is not None, f"{line!r} would go to the agent"
        assert not isinstance(command, Unclear), line


def work_with_a_repository(example: Example, folder: Path) -> None:
    """Shell commands in the repository `website`, with the files of a turn's answer in the folder above it."""
    website = folder / "website"
    website.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"}
    for name in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{name}_NAME": "Ann", f"GIT_{name}_EMAIL": "ann@example.com"}

    def run(*words: str) -> bytes:
        done = subprocess.run(words, cwd=website, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr).decode()
        return done.stdout

    run("git", "init", "-q")
    page = website / "index.html"
    page.write_text(PAGE)
    run("git", "add", "-A")
    run("git", "commit", "-q", "-m", "Begin")
    page.write_text(FIXED)
    patch = run("git", "diff", "--binary", "--full-index")
    page.write_text(PAGE)
    (folder / "turn-001-changes.patch.txt").write_bytes(patch)
    (folder / "turn-001-workspace.tar").write_bytes(packed({"workspace/index.html": FIXED, "turn/changes.patch": patch}))
    run("bash", "-euo", "pipefail", "-c", example.text)


def talk_to_the_service(example: Example, folder: Path) -> None:
    """Shell commands that call a service at `$SERVICE`, which serves `$INSTANCE`, is opened by `$KEY` and answers at once."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")

    async def talk() -> subprocess.CompletedProcess[bytes]:
        async with served(folder) as service:
            service.answer_at_once = True
            environment = {"PATH": os.environ["PATH"], "SERVICE": service.url, "INSTANCE": INSTANCE, "KEY": KEY}
            return await anyio.run_process(["bash", "-euo", "pipefail", "-c", example.text], check=False, env=environment)

    done = anyio.run(talk)
    assert done.returncode == 0, done.stderr.decode()
    assert b'"status":"Completed"' in done.stdout
    assert b"event: end" in done.stdout


def read_only(example: Example, folder: Path) -> None:
    """What cannot be run here is at least well formed."""
    match example.language:
        case "json":
            json.loads(example.text)
        case "python":
            compile(example.text, str(example), "exec")
        case "sh" | "bash":
            done = subprocess.run(["bash", "-n"], input=example.text, text=True, capture_output=True, cwd=folder, check=False)
            assert (done.returncode, done.stderr) == (0, "")
        case other:
            pytest.fail(f"{other!r} cannot be parsed here; write a kind of your own into KINDS")


KINDS: Mapping[str, Callable[[Example, Path], None]] = {
    "settings": read_settings,
    "wrong-settings": read_settings_that_do_not_fit,
    "model-parameters": set_model_parameters,
    "tool-properties": set_tool_properties,
    "chat": say_in_the_chat,
    "repository": work_with_a_repository,
    "service": talk_to_the_service,
    "endpoint": lead_to_a_model,
    "tool-models": refer_to_models,
    "aws-key": hold_a_key_of_aws,
    "prices": price_models,
    "parse": read_only,
}
"""What may stand after the language of a fenced block, and what is then done with it."""


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_works(example: Example, tmp_path: Path) -> None:
    assert example.kind in KINDS, f"choose from {', '.join(KINDS)}"
    KINDS[example.kind](example, tmp_path)


@pytest.mark.parametrize(
    ("document", "kinds"),
    [
        ("administrators_guide.md", {"settings", "wrong-settings", "model-parameters", "tool-properties"}),
        ("users_guide.md", {"chat", "repository"}),
        ("api.md", {"service"}),
        ("models.md", {"endpoint", "tool-models", "aws-key", "prices", "settings"}),
    ],
)
def test_the_guides_have_examples_of_each_kind(document: str, kinds: set[str]) -> None:
    """A mark that got lost would be an example nobody runs."""
    assert {example.kind for example in EXAMPLES if example.document == document} >= kinds


def test_the_words_a_user_may_see_are_the_services_words() -> None:
    """What a table of the user's guide quotes in its first column stands in the source, as far as it is not filled in."""
    text = (ROOT / "docs/users_guide.md").read_text(encoding="utf-8")
    quoted = [words for row in re.findall(r"^\|([^|]*)\|", text, re.MULTILINE) for words in re.findall(r'"([^"]+)"', row)]
    source = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "orchestration_service").rglob("*.py"))
    flat = re.sub(r"\s+", " ", re.sub(r'"\s+f?"', "", source))
    assert len(quoted) >= 6
    assert [words for words in quoted if re.split(r"\d|…", words)[0].strip() not in flat] == []


def test_every_test_a_document_names_is_there() -> None:
    """A document that calls a test as its witness must not outlive it."""
    texts = {document.name: document.read_text(encoding="utf-8") for document in DOCUMENTS}
    named = [(name, *found) for name, text in texts.items() for found in re.findall(r"(tests/[\w/]+\.py)::(\w+)", text)]
    assert len(named) > 20
    missing = [
        found for found in named if not (path := ROOT / found[1]).is_file() or f"def {found[2]}(" not in path.read_text(encoding="utf-8")
    ]
    assert missing == []


def test_a_block_with_a_language_only_is_not_run() -> None:
    text = "```json\n{\n```\n\n~~~sh parse\nls\n~~~\n\n````text chat\n/fork\n````\n"
    assert [(found.line, found.kind, found.text) for found in of_text("x.md", text)] == [(5, "parse", "ls\n"), (9, "chat", "/fork\n")]


@pytest.mark.parametrize(
    ("language", "kind", "text"),
    [
        ("json", "settings", '{"max_turn": 5}'),
        ("json", "settings", '{"max_turns": 5000}'),
        ("json", "wrong-settings", '{"max_turns": 5}'),
        ("json", "model-parameters", '{"claude_code": {"max_turn": 5}}'),
        ("json", "tool-properties", '{"maxturns": 5}'),
        ("text", "chat", "/rewind two"),
        ("text", "chat", "continue"),
        ("sh", "repository", "git apply ../turn-002-changes.patch.txt"),
        ("json", "endpoint", '{"name": "E", "provider": "openai"}'),
        ("json", "prices", '{"currency": "USD"}'),
        ("sh", "service", 'curl --fail --silent "$SERVICE/instances/$INSTANCE/nothing"'),
        ("sh", "parse", "if"),
        ("json", "parse", "{"),
    ],
)
def test_an_example_that_does_not_work_is_found(language: str, kind: str, text: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ValueError, ServiceError)):
        KINDS[kind](Example("x.md", 1, language, kind, text), tmp_path)
