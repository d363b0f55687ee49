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
work=$root/.data/image
python=${PYTHON:-$root/.venv/bin/python}

say() { printf './dev image: %s\n' "$1" >&2; }
die() { say "$1"; exit 1; }

find_engine() {
  local name
  for name in ${CONTAINER_ENGINE:-docker podman}; do
    if command -v "$name" >/dev/null && "$name" version >/dev/null 2>&1; then echo "$name" && return; fi
  done
  die "no container engine answers. Install one (apt-get install docker.io, or podman) and start it, or name it: CONTAINER_ENGINE=..."
}

has_image() { "$engine" image inspect "$1" >/dev/null 2>&1; }

obtain() { # the image of a distribution, from this machine or from a registry
  has_image "$1" || timeout 300 "$engine" pull --quiet "$1" >/dev/null 2>&1
}

has_packages() { # whether an image needs nothing more of its distribution
  local names
  mapfile -t names < <(sed 's/#.*//; /^$/d' "$here/packages.txt")
  "$engine" run --rm --network none --entrypoint dpkg-query "$1" -W "${names[@]}" >/dev/null 2>&1
}

# ---- the base where no registry answers

mirror_of() { # prints the mirror of this machine's own apt if that has the distribution, else nothing: debootstrap knows one
  # shellcheck disable=SC2016  # apt's own names
  apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI)' 2>/dev/null | sed -n "s/^$1 main //Ip" | head -n 1
}

bootstrap() { # DISTRIBUTION SUITE: makes the base image with all packages in it, and prints its name; 1 if that is impossible here
  local name package keys=${BASE_KEYS:-/usr/share/keyrings/$1-archive-keyring.gpg} mirror made
  name=claude-code-base:$1-$2-$(cat "$here/packages.txt" "$here/system.sh" | sha256sum | cut -c 1-8)
  if [[ -z $fresh ]] && has_image "$name"; then echo "$name" && return; fi
  if [[ $(id -u) != 0 ]]; then say "making $name takes root, once: sudo ./dev image" && return 1; fi
  if ! command -v debootstrap >/dev/null; then
    { apt-get install -qq -y debootstrap || { apt-get update -qq && apt-get install -qq -y debootstrap; }; } </dev/null >/dev/null 2>&1 ||
      { say "debootstrap is missing: apt-get install debootstrap" && return 1; }
  fi
  case $1 in debian) package=debian-archive-keyring ;; *) package=$1-keyring ;; esac # each distribution has the other's, if it is recent
  [[ -f $keys || -n ${BASE_KEYS:-} ]] || apt-get install -qq -y "$package" </dev/null >/dev/null 2>&1 || true
  [[ -f $keys ]] || { say "the keys of $1 are missing ($keys), so its packages cannot be trusted: apt-get install $package, or name a file in BASE_KEYS" && return 1; }
  say "no registry has a base, so $name is made with debootstrap (once; takes about two minutes)"
  made=$(mktemp -d -- "$work/base.XXXXXX") && chmod 0755 "$made"
  # shellcheck disable=SC2064  # this function is called in a subshell, which ends with it
  trap "rm -rf --one-file-system -- '$made'" EXIT
  mirror=$(mirror_of "$1")
  fill "$made" "$1" "$2" "$keys" "$mirror" >&2 || return 1
  tar -C "$made" --one-file-system -c . | "$engine" import - "$name" >/dev/null || return 1
  echo "$name"
}

fill() { # FOLDER DISTRIBUTION SUITE KEYS MIRROR
  local hasty=$1/etc/dpkg/dpkg.cfg.d/00-hasty # dpkg waits for the disk after each file, so that a power cut leaves a whole system
  local source=(${5:+"$5"})
  mkdir -p -- "${hasty%/*}" && echo force-unsafe-io >"$hasty"
  if [[ $2 == ubuntu && ! -e /usr/share/debootstrap/scripts/$3 ]]; then # older than the suite; all suites of Ubuntu share one script
    source=("${5:-}" gutsy)
  fi
  debootstrap --variant=minbase --keyring="$4" --force-check-gpg "$3" "$1" "${source[@]}" >"$work/base.log" 2>&1 ||
    { say "debootstrap failed, see $work/base.log" && return 1; }
  write_sources "$1" "$2" "$3"
  cp -- "$here/packages.txt" "$here/system.sh" "$1/tmp/"
  chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C sh /tmp/system.sh install /tmp/packages.txt >>"$work/base.log" 2>&1 ||
    { say "installing the packages failed, see $work/base.log" && return 1; }
  rm -f -- "$hasty" "$1/tmp/packages.txt" "$1/tmp/system.sh" "$1/etc/resolv.conf" "$1/etc/hostname"
}

write_sources() { # FOLDER DISTRIBUTION SUITE: with updates and security fixes, which debootstrap leaves out
  local mirror components=main security
  mirror=$(sed -n 's/^deb \(http[^ ]*\) .*/\1/p' "$1/etc/apt/sources.list" | head -n 1)
  security=$mirror
  if [[ $2 == debian ]]; then security=${mirror%/}-security; else components="main universe"; fi
  printf 'deb %s %s %s\n' "$mirror" "$3" "$components" "$mirror" "$3-updates" "$components" "$security" "$3-security" "$components" \
    >"$1/etc/apt/sources.list"
}

choose_base() { # sets base and system
  local made
  case $wanted in
    ubuntu | "") base=ubuntu:24.04 system=install ;;
    debian) base=debian:trixie system=install ;;
    *) base=$wanted system=install ;;
  esac
  if obtain "$base"; then
    if has_packages "$base"; then system=present; fi
    return
  fi
  case $wanted in
    ubuntu) made=$(bootstrap ubuntu noble) ;;
    debian) made=$(bootstrap debian trixie) ;;
    "") made=$(bootstrap ubuntu noble) || { say "Ubuntu is not to be had here, so Debian stands in" && made=$(bootstrap debian trixie); } ;;
    *) die "there is no image $base here, and no registry gives it" ;;
  esac || die "there is no base: name an image that this machine has (--base IMAGE)"
  base=$made system=present
}

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
