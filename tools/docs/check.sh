#!/usr/bin/env bash
# Checks the text of the repository: spelling, Markdown, links, plain English, generated tables, the site. 8 s of CPU, no
# network.
#
#   bash tools/docs/check.sh
#
# The tools come from PyPI (tools/docs/requirements.txt); tools/setup.sh docs installs them into build/docs-venv.
set -u
cd "$(dirname "$0")/../.."
. tools/setup.sh
quire_setup_docs || exit 1
bin=build/docs-venv/bin
failed=""

run() { # name command...: prints the output of a check that fails
    local name=$1 out
    shift
    if out=$("$@" 2>&1); then
        echo "$name: ok"
    else
        printf '%s\n%s: FAILED\n' "$out" "$name"
        failed="$failed $name"
    fi
}

spelling() { git ls-files -z -- '*.md' '*.c' '*.h' '*.cc' '*.cu' '*.cuh' '*.rs' '*.py' '*.sh' | xargs -0 "$bin/codespell" --config tools/docs/codespell.cfg; }

run spelling spelling
run markdown "$bin/rumdl" check --config tools/docs/rumdl.toml README.md CONTRIBUTING.md CHANGELOG.md docs
run links python3 -B tools/docs/links.py
run prose python3 -B tools/check_prose.py
run performance python3 -B tools/docs/performance.py --check
run site bash tools/docs.sh
[ -z "$failed" ]
