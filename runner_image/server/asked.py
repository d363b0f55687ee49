"""What an execution is asked in, and answered in: the platform's own words, or those of a code-interpreter pool.

Programs written for a code-interpreter pool send `{"properties": {"code": …}}` to the same route. They look for the answer below
`properties` (the pools' first form), or in `status` and `result` (the present one): they get both. Everybody else gets `detail`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import BadRequest
from .executor import Outcome

_FIXED: Mapping[str, str] = {"codeInputType": "inline", "executionType": "synchronous"}


@dataclass(frozen=True)
class AskedExecution:
    """One execution as its caller put it."""

    fields: Mapping[str, object]
    """Where the code stands."""

    is_pool_form: bool
    """Whether the caller speaks to a code-interpreter pool."""

    def code(self) -> str:
        """Give the code to run.

        Raises:
            BadRequest: There is none, or something is asked of it that this server does not do.
        """
        code = self.fields.get("code")
        if not isinstance(code, str):
            raise BadRequest("The request body has no text under 'code'; send the Python code to run there.")
        for name, only in _FIXED.items() if self.is_pool_form else ():
            asked = self.fields.get(name, only)
            if not isinstance(asked, str) or asked.lower() != only:
                raise BadRequest(f"The request asks for {name} {str(asked)[:100]!r}; this server knows {only!r} alone.")
        return code

    def answer(self, outcome: Outcome, seconds: float) -> dict[str, object]:
        """Put what came of it into the caller's form."""
        if not self.is_pool_form:
            return {"detail": {"results": outcome.results, "output": outcome.output, "error": outcome.error}}
        said = {"stdout": outcome.output, "stderr": outcome.error, "executionTimeInMilliseconds": int(seconds * 1000)}
        value = outcome.results or ""
        has_failed = bool(outcome.error)
        return {
            "properties": {"status": "Failure" if has_failed else "Success", "result": value, **said},
            "status": "Failed" if has_failed else "Succeeded",
            "result": {"executionResult": value, **said},
        }


def read_asked(body: Mapping[str, object]) -> AskedExecution:
    """Tell by the body who asks."""
    properties = body.get("properties")
    return AskedExecution(properties, True) if isinstance(properties, dict) and "code" not in body else AskedExecution(body, False)
