"""The variant that stands in for the platform's stock code-session container has what that one's users expect."""

from collections.abc import Iterator

import httpx
import pytest

from context_client.conformance.container import execute, listing
from tests.images.building import Container, build_image, container

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]  # builds the image

STOCK = (
    *("docx", "docx2python", "fpdf", "matplotlib", "numpy", "openpyxl", "pandas", "pptx"),
    *("pyarrow", "pypdf", "rdflib", "sklearn", "textract", "xlsxwriter"),
)


@pytest.fixture(scope="module")
def sandbox(engine: str) -> Iterator[Container]:
    with container(engine, build_image(variant="data")) as made:
        yield made


async def test_stock_packages_are_there(client: httpx.AsyncClient) -> None:
    assert (await execute(client, f"import {', '.join(STOCK)}"))["error"] == ""


async def test_a_table_becomes_a_file_and_a_picture(client: httpx.AsyncClient) -> None:
    code = """
import matplotlib.pyplot as plt, pandas
table = pandas.DataFrame({"a": [1, 2], "b": [3, 4]})
table.to_excel("table.xlsx"); table.to_parquet("table.parquet")
table.plot(); plt.savefig("plot.png")
"""
    assert (await execute(client, code))["error"] == ""
    assert {"table.xlsx", "table.parquet", "plot.png"} <= (await listing(client)).keys()


def test_the_agents_python_has_them_too(sandbox: Container) -> None:
    """They lie below /usr, which the agent sees, and not in /opt, which it does not."""
    found = sandbox.run("env", "-i", "/usr/bin/python3", "-c", "import pandas; print(pandas.__file__)").stdout
    assert found.startswith("/usr/local/lib/")
