#!/usr/bin/env bash
# Measures Quire against llama.cpp and PyTorch on this machine, and writes the table to docs/benchmarks/.
#
#   bash tools/bench/run.sh [row ...] [--out docs/benchmarks/cpu] [--rounds 5] [--threads 2]     (--help says the rest)
#
# The first run creates a virtual environment in build/bench/venv with the pinned requirements.txt and compiles
# llama.cpp for this machine: about 2 GB of downloads and 20 minutes of two cores. QUIRE_BENCH_VENV selects an
# existing one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=${QUIRE_BENCH_VENV:-$here/../../build/bench/venv}

if [ ! -x "$venv/bin/python" ] || { [ -z "${QUIRE_BENCH_VENV:-}" ] && [ ! -e "$venv/complete" ]; }; then
    [ -z "${QUIRE_BENCH_VENV:-}" ] || { echo "quire: QUIRE_BENCH_VENV=$venv: no virtual environment" >&2; exit 1; }
    echo "quire: installing the peers into $venv; llama.cpp is compiled for this machine" >&2
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --upgrade pip
    # Natively: a prebuilt wheel would lack AVX-512 and AMX, and would be slower than real installations.
    CMAKE_ARGS="-DGGML_NATIVE=ON -DCMAKE_CXX_FLAGS=-include$here/tile_config.h" "$venv/bin/pip" install --quiet --no-binary llama-cpp-python -r "$here/requirements.txt"
    touch "$venv/complete"
fi
exec "$venv/bin/python" "$here/run.py" "$@"
