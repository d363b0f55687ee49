"""Translates what Azure's clients raise, for the three places a deployment reaches through them."""

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ServiceRequestError, ServiceResponseError

from orchestration_service.deploying.errors import DeploymentError, Forbidden, NotSignedIn, Refused, Unreachable

REQUEST_SECONDS = 20
"""How long one request may take."""
RETRIES = 3
"""How often one is tried again."""


def first_line(error: AzureError) -> str:
    """Return what an error says at first, without its full stop; the rest is for developers."""
    return str(error.message or type(error).__name__).splitlines()[0][:300].rstrip(".")


def translated(error: AzureError, place: str, role: str) -> DeploymentError:
    """Return our error for one of Azure's.

    Args:
        error: What was raised.
        place: What was asked, in words, with its address.
        role: Which role whoever asks needs there.
    """
    said = first_line(error)
    status = error.status_code if isinstance(error, HttpResponseError) else None
    if status == 403 or (isinstance(error, ClientAuthenticationError) and status is not None):
        return Forbidden(f"{place} refuses this identity ({said}). Give it the role {role}, or sign in as somebody who has it.")
    if isinstance(error, ClientAuthenticationError):
        return NotSignedIn(f"No token for {place}: {said}. Sign in with 'az login', or run where there is a managed identity.")
    if isinstance(error, ServiceRequestError | ServiceResponseError):
        return Unreachable(
            f"{place} cannot be reached: {said}. Check the address in the profile, the network and the firewall of the account."
        )
    if status is not None and (status == 429 or status >= 500):
        return Unreachable(f"{place} does not work at the moment (status {status}: {said}). Run the command again later.")
    return Refused(f"{place} refuses the request: {said}. Check the address in the profile.", status or 0)
