#!/bin/sh
# Installs the Python packages of the image, from a folder of wheels if that holds any; pip checks every hash.
# usage: install.sh FOLDER VERSION   (FOLDER holds the locks, and the wheels or none; VERSION is the project's)
set -eu

folder=$1
to=/opt/claude-code/site-packages
if ls "$folder"/pip-*.whl >/dev/null 2>&1; then # the base has no pip, and the image needs none
  set -- "$2" python3 "$(ls "$folder"/pip-*.whl)/pip" install --no-index -f "$folder"
else
  set -- "$2" python3 -m pip install
  python3 -m pip --version >/dev/null 2>&1 || { apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-pip; } >/dev/null
fi
version=$1
shift
"$@" --quiet --disable-pip-version-check --no-cache-dir --no-compile --no-deps --require-hashes --only-binary :all: \
  --root-user-action ignore --target "$to" --requirement "$folder/requirements.lock"
rm -rf "$to/bin"
about=$to/foundationallm_claude_code-$version.dist-info # from it the service knows its version
mkdir "$about"
printf 'Metadata-Version: 2.1\nName: foundationallm-claude-code\nVersion: %s\n' "$version" >"$about/METADATA"
chmod -R a+rX,go-w /opt/claude-code
# without times, so that equal packages give equal layers; some packages ship files for other versions of Python
python3 -m compileall -q --invalidation-mode unchecked-hash "$to" >/dev/null || true
