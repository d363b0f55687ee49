#!/usr/bin/env bash
# Builds the image: `./dev image` runs it. Everything that needs a network happens here, on the host, and none of it in the build.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: ./dev image [--base ubuntu|debian|IMAGE] [--variant plain|data] [--tag NAME] [--fresh]

  --base     ubuntu (the default), debian, or the name of an image of one of them. What no registry gives is made with
             debootstrap, which needs root once; without --base, Debian stands in where Ubuntu is not to be had.
  --variant  data: with the packages that users of the stock code-session container expect
  --tag      name of the image (claude-code-runner:dev; claude-code-runner:dev-data)
  --fresh    make the base anew, for the distribution's security fixes

Leaves a list of everything in it (CycloneDX) in .data/image/. CONTAINER_ENGINE names the engine (docker, else podman); BASE_KEYS,
beside --base, a file with the keys that sign the distribution's packages, where /usr/share/keyrings has none.
TEXT
}

root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
here=$root/runner_image/image
parts=$here packages=$here/packages.txt
work=$root/.data/image
python=${PYTHON:-$root/.venv/bin/python}

# shellcheck source-path=SCRIPTDIR source=base.sh
source "$here/base.sh"

# ---- the build

lay_context() { # a copy, so that nobody's edit falls into the middle of a build
  rm -rf -- "$context" && mkdir -p -- "$context/wheels"
  cp -- "$root/pyproject.toml" "$root/runner_image/Dockerfile" "$context/"
  tar -C "$root" --exclude=__pycache__ -c runner_image workflow_schemas | tar -C "$context" -x
}

fetch_wheels() { # for the interpreter that the base has
  local version locks=("$here/requirements.lock") house
  version=$("$engine" run --rm --network none --entrypoint python3 "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  if [[ $variant == data ]]; then locks+=("$here/data.lock"); fi
  house=$work/wheels-$version
  (cd -- "$root" && "$python" -P -m runner_image.image.wheelhouse --python "$version" --to "$house" "${locks[@]}") ||
    die "the wheels cannot be fetched, see above. pip needs a package index: check its settings (pip config list)."
  for lock in "${locks[@]}"; do cp -fl -- "$house/$(basename -- "$lock" .lock)"/*.whl "$context/wheels/"; done
}

build() { # the image, or with --target NAME a part of it
  local words=(--build-arg "BASE=$base" --build-arg "SYSTEM=$system" --build-arg "VARIANT=$variant" --build-arg "VERSION=$version")
  words+=(--build-arg "SOURCE_DIGEST=$digest" --build-arg "REVISION=$revision")
  if [[ $system == present ]]; then words+=(--network none); fi
  "$engine" build --quiet "${words[@]}" "$@" -- "$context" >"$work/build.log" 2>&1 || { tail -n 30 -- "$work/build.log" >&2 && die "the build failed, see $work/build.log"; }
}

report() {
  local size layers bill=$work/${tag//[\/:]/_}.cdx.json
  size=$("$engine" image inspect --format '{{.Size}}' "$tag")
  layers=$("$engine" image inspect --format '{{len .RootFS.Layers}}' "$tag")
  "$engine" run --rm --network none --read-only --cap-drop ALL --entrypoint python3 "$tag" -P -m runner_image.image.inventory >"$bill.part"
  mv -- "$bill.part" "$bill"
  printf '%-12s %s\n' image "$tag" base "$base" sources "$digest" size "$((size / 1000000)) MB in $layers layers" \
    built "in $1 s" answers "$(cd -- "$root" && "$python" -P -m runner_image.image.starting --engine "$engine" "$tag") ms after its start" \
    contents "${bill#"$root"/}"
}

wanted="" variant=plain tag="" fresh=""
while (($#)); do
  case $1 in
    --base) wanted=${2:?--base needs a name} && shift ;;
    --variant) variant=${2:?--variant needs a name} && shift ;;
    --tag) tag=${2:?--tag needs a name} && shift ;;
    --fresh) fresh=yes ;;
    -h | --help) usage && exit ;;
    *) usage >&2 && die "no option '$1'" ;;
  esac
  shift
done
[[ $variant == plain || $variant == data ]] || die "the variant is 'plain' or 'data', not '$variant'"
if [[ -z $tag ]]; then tag=claude-code-runner:dev$([[ $variant == plain ]] || echo "-$variant"); fi

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
build --target system --tag "claude-code-system:$("$engine" image inspect --format '{{.Id}}' "$base" | cut -c 8-19)"
fetch_wheels "claude-code-system:$("$engine" image inspect --format '{{.Id}}' "$base" | cut -c 8-19)"
build --tag "$tag"
report $((SECONDS - begin))
