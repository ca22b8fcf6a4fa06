#!/usr/bin/env bash
# Installs Debian packages without asking and without leaving a service running.
#   tests/setup/apt.sh PACKAGE…
set -euo pipefail
. "$(dirname "$0")/lib.sh"

lacks_apt && die "cannot install $*: needs apt-get, and root or sudo without a password"
[ "$(id -u)" = 0 ] || exec sudo -n -- env "DIE_FD=${DIE_FD:-2}" "$0" "$@"

# A fresh package starts its service, and Debian's postgresql makes a cluster on port 5432 besides.
# Neither is wanted, and the machine's own policy is back in place when this ends.
undo=()
policy=/usr/sbin/policy-rc.d
log=$(mktemp)
cleanup() { rm -f "$log" ${undo[@]+"${undo[@]}"}; }
trap cleanup EXIT
if [ ! -e "$policy" ]; then
    undo+=("$policy")
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
case " $* " in *" postgresql-"*)
    mkdir -p /etc/postgresql-common/createcluster.d
    no_cluster=/etc/postgresql-common/createcluster.d/zz-pglimit.conf
    undo+=("$no_cluster")
    echo 'create_main_cluster = false' >"$no_cluster"
    ;;
esac

say "installing $* with apt-get"
export DEBIAN_FRONTEND=noninteractive
apt() {
    apt-get -q -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1 </dev/null && return
    tail -n 20 "$log" >&2
    die "apt-get $1 failed (its last lines are above): mend that, or install by hand: $packages"
}
packages="$*"
apt update
apt install -y --no-install-recommends "$@"
