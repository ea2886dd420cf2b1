#!/usr/bin/env bash
# Runs real clients and frameworks against build/quire with the demo model, and prints a table client x feature.
#
#   bash tests/clients/more/run.sh                 the table; exit status 1 if a case fails
#   bash tests/clients/more/run.sh --json          a line of JSON for each case
#   bash tests/clients/more/run.sh --markdown      the table of docs/internals/conformance.md
#   bash tests/clients/more/run.sh --only WORDS    cases whose client and feature contain WORDS, such as "Instructor tools"
#
# Installs pinned packages into build/clients-more (QUIRE_MORE) where they have changed: 0.8 GB from PyPI and npm. Needs
# Python 3.11 with venv, and Node.js 20; without Node.js its clients are left out, which the last line says.
set -eu
cd "$(dirname "$0")/../../.."
here=tests/clients/more
to=${QUIRE_MORE:-build/clients-more}
mkdir -p "$to/node"

venv() { # NAME REQUIREMENTS
    cmp -s "$2" "$to/$1/requirements.txt" && return
    echo "installing $2 into $to/$1" >&2
    rm -rf "${to:?}/$1"
    python3 -m venv "$to/$1"
    # Pinned completely, so that pip need not look for versions that fit.
    "$to/$1/bin/pip" install -q --no-deps --no-compile --disable-pip-version-check -r "$2"
    cp "$2" "$to/$1/requirements.txt"
}

venv python $here/requirements.txt
venv llamaindex $here/requirements-llamaindex.txt # its limits on shared packages exclude those of the others
if command -v npm >/dev/null && ! cmp -s $here/package-lock.json "$to/node/installed.json"; then
    echo "installing $here/package-lock.json into $to/node" >&2
    cp $here/package.json $here/package-lock.json "$to/node/"
    npm ci --prefix "$to/node" --ignore-scripts --no-audit --no-fund --silent
    cp $here/package-lock.json "$to/node/installed.json"
fi
exec "$to/python/bin/python" $here/run.py "$to" "$@"
