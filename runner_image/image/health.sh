#!/bin/sh
# Asks the server of this container whether it is ready, wherever it was told to listen.
set -eu
if [ -n "${CLAUDE_CODE_SERVER_UDS:-}" ]; then set -- --unix-socket "$CLAUDE_CODE_SERVER_UDS"; else set --; fi
exec curl --silent --fail --max-time 4 --output /dev/null "$@" "http://127.0.0.1:${CLAUDE_CODE_SERVER_PORT:-80}/health"
