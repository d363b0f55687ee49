"""The smoke commands as docs/direct.md shows them."""

import re
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
_PAGE = (ROOT / "docs" / "direct.md").read_text(encoding="utf-8")

PROGRAMS: Sequence[tuple[str, str]] = re.findall(r'python -c "\n(.*?)\n"\n# ([^\n]*)', _PAGE, re.DOTALL)
"""Each program with what it prints."""

BODIES: Sequence[tuple[str, str]] = re.findall(r"-d '(\{.*?\})'\n# ([^\n…]*)", _PAGE, re.DOTALL)
"""Each body for `/code/execute` with what is answered, up to where the page leaves off."""
