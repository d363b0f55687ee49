"""Roles in AWS that the service's Entra identity takes; needs the extra `bedrock`.

The library blocks while it asks, so it is asked in a thread.
"""

import logging

import anyio
import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import SecretStr

from orchestration_service.brokers.credentials import AwsKeys
from orchestration_service.brokers.errors import IdentityAway, IdentityRefused
from orchestration_service.brokers.kept import Lasting

_SESSION_NAME = "foundationallm-claude-code"

_log = logging.getLogger(__name__)


async def take_role(role_arn: str, region: str, entra_token: str) -> Lasting[AwsKeys]:
    """Change an Entra token into temporary keys of a role.

    Raises:
        IdentityRefused: the role may not be taken by this identity.
        IdentityAway: the token service cannot be reached.
    """
    try:
        return await anyio.to_thread.run_sync(_ask, role_arn, region, entra_token, abandon_on_cancel=True)
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        _log.warning("The role %r was not given: %s", role_arn, error.response.get("Error", {}).get("Code"))
        raise (IdentityAway if status >= 500 else IdentityRefused)("AWS") from error
    except BotoCoreError as error:
        _log.warning("The role %r cannot be asked for: %s", role_arn, error)
        raise IdentityAway("AWS") from error


def _ask(role_arn: str, region: str, entra_token: str) -> Lasting[AwsKeys]:
    config = Config(signature_version=UNSIGNED, connect_timeout=10, read_timeout=20, retries={"max_attempts": 0})
    client = botocore.session.get_session().create_client("sts", region_name=region, config=config)
    answer = client.assume_role_with_web_identity(RoleArn=role_arn, RoleSessionName=_SESSION_NAME, WebIdentityToken=entra_token)
    given = answer["Credentials"]
    keys = AwsKeys(
        access_key_id=SecretStr(given["AccessKeyId"]),
        secret_access_key=SecretStr(given["SecretAccessKey"]),
        session_token=SecretStr(given["SessionToken"]),
    )
    return Lasting(keys, given["Expiration"].timestamp())
