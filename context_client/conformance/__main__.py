"""Run the conformance checks against a server by address and key.

`python -m context_client.conformance --url … --api-key … --instance … [--provider …] [--only NAME]`
"""

import argparse
import sys
import uuid

import anyio

from context_client.client import ContextClient
from context_client.conformance.context_api import CHECKS, Ground, run_check
from context_client.identity import UserIdentity


def main() -> int:
    """Run the checks named on the command line; 0 if all hold."""
    parser = argparse.ArgumentParser(prog="context_client.conformance", description=__doc__)
    parser.add_argument("--url", required=True, help="base URL of the Context API")
    parser.add_argument("--api-key", required=True, help="its API key")
    parser.add_argument("--instance", required=True, help="instance id")
    parser.add_argument("--provider", default="AzureContainerAppsCustomContainer", help="wire name of the provider")
    parser.add_argument("--agent", default="conformance", help="agent name to upload for")
    parser.add_argument("--user", default="conformance.one@example.test", help="UPN of the first user")
    parser.add_argument("--other-user", default="conformance.two@example.test", help="UPN of the second user")
    parser.add_argument("--only", action="append", choices=sorted(CHECKS), help="run this check; repeatable")
    return anyio.run(_run, parser.parse_args())


async def _run(asked: argparse.Namespace) -> int:
    failed = 0
    async with ContextClient(base_url=asked.url, api_key=asked.api_key, instance_id=asked.instance) as client:
        for name in asked.only or CHECKS:
            ground = Ground(
                client=client,
                user=UserIdentity(name="One", user_name=asked.user, upn=asked.user),
                other_user=UserIdentity(name="Two", user_name=asked.other_user, upn=asked.other_user),
                conversation_id=str(uuid.uuid4()),
                agent_name=asked.agent,
                provider=asked.provider,
            )
            problem = await run_check(name, ground)
            failed += problem is not None
            sys.stdout.write(f"{'ok  ' if problem is None else 'FAIL'} {name}{f': {problem}' if problem else ''}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
