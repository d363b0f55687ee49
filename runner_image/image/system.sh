#!/bin/sh
# Makes a bare Ubuntu or Debian into the system of the image: packages, the user, no setuid file.
# usage: system.sh install|present PACKAGES   ("present": the packages must be there already, nothing is fetched)
set -eu

user_id=10001 # not 1000: who escapes must not be the first person of the host
packages=$(sed 's/#.*//' "$2" | tr '\n' ' ')

install_packages() {
  cat >/etc/dpkg/dpkg.cfg.d/01-small <<'TEXT'
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/lintian/*
TEXT
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get upgrade -qq -y --no-install-recommends >/dev/null
  # shellcheck disable=SC2086
  apt-get install -qq -y --no-install-recommends $packages >/dev/null
  apt-get clean
  find /usr/share/doc -type f ! -name copyright -delete
  find /usr/share/doc -type d -empty -delete
  rm -rf /usr/share/man/* /usr/share/info/* /usr/share/locale/* /usr/share/lintian
  rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/apt /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache
}

check_packages() {
  missing=
  for name in $packages; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing="$missing $name"
  done
  [ -z "$missing" ] && return
  echo "the base image lacks$missing: install them there, or build with --build-arg SYSTEM=install" >&2
  exit 1
}

make_user() {
  getent passwd "$user_id" >/dev/null && return
  groupadd --gid "$user_id" agent
  useradd --uid "$user_id" --gid "$user_id" --home-dir /home/agent --shell /bin/bash --no-create-home --no-log-init agent
  rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid-
}

case $1 in
  install) install_packages ;;
  present) check_packages ;;
  *) echo "system.sh: 'install' or 'present', not '$1'" >&2 && exit 2 ;;
esac
make_user
for place in /mnt/data /workspace /outputs /run/claude-code /home/agent; do
  [ -d "$place" ] || install -d -m 0700 -o "$user_id" -g "$user_id" "$place"
done
find / -xdev -perm /6000 -type f -exec chmod a-s {} +
