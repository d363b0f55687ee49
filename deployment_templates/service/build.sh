#!/usr/bin/env bash
# Builds the image of the service: `./dev image --service` runs it. Everything that needs a network happens here, and none of it in the build.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: ./dev image --service [--base debian|ubuntu|IMAGE] [--tag NAME] [--fresh]

  --base   debian (the default), ubuntu, or the name of an image of one of them. What no registry gives is made with debootstrap,
           which needs root once.
  --tag    name of the image (claude-code-service:dev)
  --fresh  make the base anew, for the distribution's security fixes

CONTAINER_ENGINE names the engine (docker, else podman); BASE_KEYS a file with the keys that sign the distribution's packages, where
/usr/share/keyrings has none.
TEXT
}

root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
here=$root/deployment_templates/service
parts=$root/runner_image/image packages=$here/packages.txt
work=$root/.data/service-image
python=${PYTHON:-$root/.venv/bin/python}
# shellcheck source-path=SCRIPTDIR source=../../runner_image/image/base.sh
source "$parts/base.sh"

lay_context() { # a copy, so that nobody's edit falls into the middle of a build
  local parcels=(orchestration_service context_client workflow_schemas runner_image deployment_templates)
  rm -rf -- "$context" && mkdir -p -- "$context/wheels"
  cp -- "$root/pyproject.toml" "$context/"
  tar -C "$root" --exclude=__pycache__ -c "${parcels[@]}" | tar -C "$context" -x
}

fetch_wheels() { # for the interpreter that the base has
  local version lock house
  version=$("$engine" run --rm --network none --entrypoint python3 "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  house=$work/wheels-$version
  (cd -- "$root" && "$python" -P -m runner_image.image.wheelhouse --python "$version" --to "$house" "$here"/*.lock) ||
    die "the wheels cannot be fetched, see above. pip needs a package index: check its settings (pip config list)."
  for lock in "$here"/*.lock; do cp -fl -- "$house/$(basename -- "$lock" .lock)"/*.whl "$context/wheels/"; done
}

build() { # the image, or with --target NAME a part of it
  local words=(--build-arg "BASE=$base" --build-arg "SYSTEM=$system" --build-arg "VERSION=$version")
  words+=(--build-arg "SOURCE_DIGEST=$digest" --build-arg "REVISION=$revision" --file "$context/deployment_templates/service/Dockerfile")
  if [[ $system == present ]]; then words+=(--network none); fi
  "$engine" build --quiet "${words[@]}" "$@" -- "$context" >"$work/build.log" 2>&1 || { tail -n 30 -- "$work/build.log" >&2 && die "the build failed, see $work/build.log"; }
}

wanted=debian tag=claude-code-service:dev fresh=""
while (($#)); do
  case $1 in
    --base) wanted=${2:?--base needs a name} && shift ;;
    --tag) tag=${2:?--tag needs a name} && shift ;;
    --fresh) fresh=yes ;;
    -h | --help) usage && exit ;;
    *) usage >&2 && die "no option '$1'" ;;
  esac
  shift
done

engine=$(find_engine)
mkdir -p -- "$work"
exec 9>"$work/lock"
if command -v flock >/dev/null; then flock 9; fi # two at once would fetch the same wheels into the same place
context=$(mktemp -d -- "$work/context.XXXXXX")
trap 'rm -rf -- "$context"' EXIT
version=$("$python" -c 'import sys, tomllib; print(tomllib.load(open(sys.argv[1], "rb"))["project"]["version"])' "$root/pyproject.toml")
revision=$(git -C "$root" rev-parse HEAD 2>/dev/null || true)
choose_base
begin=$SECONDS
lay_context
digest=$(cd -- "$context" && PYTHONDONTWRITEBYTECODE=1 "$python" -c 'from workflow_schemas.sources import own_sources, sources_digest
print(sources_digest(own_sources()))')
build --target system --tag "claude-code-service-system:$("$engine" image inspect --format '{{.Id}}' "$base" | cut -c 8-19)"
fetch_wheels "claude-code-service-system:$("$engine" image inspect --format '{{.Id}}' "$base" | cut -c 8-19)"
build --tag "$tag"
size=$("$engine" image inspect --format '{{.Size}}' "$tag")
printf '%-12s %s\n' image "$tag" base "$base" sources "$digest" size "$((size / 1000000)) MB" built "in $((SECONDS - begin)) s"
