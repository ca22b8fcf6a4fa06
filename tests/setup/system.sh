#!/usr/bin/env bash
# Prints the folder of the PostgreSQL server binaries to use, installing the distribution's when
# there are none.
#   tests/setup/system.sh            what the demo needs
#   tests/setup/system.sh PROGRAM…   and these programs: cc, npm, pgbench, pgbouncer, spin
#   tests/setup/system.sh lint …     and the extension plpgsql_check for that server
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
cd "$here/../.."

command -v go >/dev/null || die "Go is missing: install Go 1.25 or newer, https://go.dev/doc/install"

missing=$(mktemp)
trap 'rm -f "$missing"' EXIT
find_binaries() { go run ./tests/setup/pgbin 2>"$missing"; }
why_missing() { sed '/^go: downloading/d; /^exit status/d' "$missing"; }

packages=()
if bin=$(find_binaries); then
    major=$("$bin/postgres" --version | sed -n 's/^.*) \([0-9]*\).*/\1/p')
elif [ -n "${PGLIMIT_PG_BIN:-}" ] || lacks_apt; then
    die "$(why_missing)"
else
    # Which major the distribution has is known only once its lists are there.
    apt-cache show postgresql >/dev/null 2>&1 || "$here/apt.sh" postgresql-common
    major=$(apt-cache depends postgresql | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p')
    [ "${major:-0}" -lt 15 ] || packages+=("postgresql-$major")
fi

for need in "$@"; do
    case $need in
    lint)
        # Only the distribution's server has the extension packaged for it.
        case ${bin:-/usr/lib/postgresql/$major/bin} in "/usr/lib/postgresql/$major/bin")
            [ -e "/usr/share/postgresql/$major/extension/plpgsql_check.control" ] ||
                packages+=("postgresql-$major-plpgsql-check")
            ;;
        esac
        ;;
    cc) command -v "$(go env CC)" >/dev/null || packages+=(gcc libc6-dev) ;;
    pgbench) command -v pgbench >/dev/null || packages+=(postgresql-contrib) ;;
    *) command -v "$need" >/dev/null || [ -x "/usr/sbin/$need" ] || packages+=("$need") ;;
    esac
done
if [ ${#packages[@]} -gt 0 ]; then
    if lacks_apt; then
        say "not installed, and what needs it is left out or fails: ${packages[*]}"
    else
        "$here/apt.sh" "${packages[@]}"
    fi
fi

if [ -z "$bin" ]; then
    # Ubuntu 22.04, for one, has PostgreSQL 14, which is out of support.
    [ "${major:-0}" -ge 15 ] || exec "$here/major.sh" 18
    bin=$(find_binaries) || die "$(why_missing)"
fi
echo "$bin"
