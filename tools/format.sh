#!/usr/bin/env bash
# Formats every C, CUDA and C++ source with .clang-format.
#
#   bash tools/format.sh            changes the files
#   bash tools/format.sh --check    changes nothing, names what would change, fails if anything would
#
# One pinned version of the tool, because versions differ: from PyPI, into build/format.
set -eu
cd "$(dirname "$0")/.."
version=19.1.7
tool=build/format/bin/clang-format
if ! "$tool" --version 2>/dev/null | grep -qF "$version"; then
    rm -rf build/format
    mkdir -p build
    python3 -m venv build/format
    build/format/bin/pip install -q --disable-pip-version-check "clang-format==$version"
fi
files() { git ls-files -z '*.c' '*.h' '*.cu' '*.cuh' '*.cc'; }
case ${1:-} in
    "") files | xargs -0 "$tool" -i ;;
    --check) files | xargs -0 "$tool" --dry-run --Werror ;;
    *) echo "usage: bash tools/format.sh [--check]" >&2; exit 2 ;;
esac
