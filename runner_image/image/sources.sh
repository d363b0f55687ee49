#!/bin/sh
# Ends the build of our part: what the sources are is checked, and they are compiled, because the image is read-only where it runs.
# usage: sources.sh [DIGEST]
set -eu

cd /opt/claude-code/src
find . -name __pycache__ -prune -exec rm -rf {} +
found=$(PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=. python3 -c 'from workflow_schemas.sources import *; print(sources_digest(own_sources()))')
if [ -n "${1:-}" ] && [ "$1" != "$found" ]; then
  echo "the sources in the build context are $found, not $1: the context is stale" >&2
  exit 1
fi
chmod -R a+rX,go-w .
python3 -m compileall -q --invalidation-mode unchecked-hash .
