#!/bin/sh
# Installs the Python packages of the image, from a folder of wheels if that holds any; pip checks every hash.
# usage: install.sh plain|data FOLDER   (FOLDER holds the locks, and the wheels or none)
set -eu

pip_install() { # TARGET LOCK
  set -- --target "$1" --requirement "$2"
  if ls "$folder"/*.whl >/dev/null 2>&1; then set -- --no-index -f "$folder" "$@"; fi
  python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --no-deps --require-hashes --only-binary :all: "$@"
}

folder=$2
system=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
pip_install /opt/claude-code/site-packages "$folder/requirements.lock"
case $1 in
  plain) ;;
  data) pip_install "$system" "$folder/data.lock" ;;
  *) echo "install.sh: the variant is 'plain' or 'data', not '$1'" >&2 && exit 2 ;;
esac
rm -rf /opt/claude-code/site-packages/bin
# for code that somebody else's server runs without our environment; the agent, for whom /opt does not exist, sees none of it
mkdir -p "$system"
printf '%s\n' /opt/claude-code/src /opt/claude-code/site-packages >"$system/claude-code.pth"
command -v python >/dev/null || ln -s "$(command -v python3)" /usr/local/bin/python # people and agents type it
chmod -R a+rX,go-w /opt/claude-code /usr/local
for place in /opt/claude-code /usr/local/lib; do
  # without times, so that equal packages give equal layers; some packages ship files for other versions of Python
  python3 -m compileall -q --invalidation-mode unchecked-hash "$place" >/dev/null || true
done
