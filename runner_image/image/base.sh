# Sourced by the scripts that build images: finds the engine, and makes a base where no registry has one. These variables are set there:
#   work      folder for what is made on the way
#   parts     folder of system.sh, which makes a distribution into the system of an image
#   packages  packages.txt, the distribution's packages in it
#   wanted    what the user calls the base, or nothing; fresh: not empty to make it anew
# shellcheck shell=bash disable=SC2154

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
  mapfile -t names < <(sed 's/#.*//; /^$/d' "$packages")
  "$engine" run --rm --network none --entrypoint dpkg-query "$1" -W "${names[@]}" >/dev/null 2>&1
}

# ---- the base where no registry answers

mirror_of() { # prints the mirror of this machine's own apt if that has the distribution, else nothing: debootstrap knows one
  # shellcheck disable=SC2016  # apt's own names
  apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI)' 2>/dev/null | sed -n "s/^$1 main //Ip" | head -n 1
}

bootstrap() { # DISTRIBUTION SUITE: makes the base image with all packages in it, and prints its name; 1 if that is impossible here
  local name package keys=${BASE_KEYS:-/usr/share/keyrings/$1-archive-keyring.gpg} mirror made
  name=claude-code-base:$1-$2-$(cat "$packages" "$parts/system.sh" | sha256sum | cut -c 1-8)
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
  cp -- "$packages" "$parts/system.sh" "$1/tmp/"
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
