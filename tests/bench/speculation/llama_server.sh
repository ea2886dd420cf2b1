#!/usr/bin/env bash
# Builds llama.cpp's server for this machine, the peer of tests/bench/speculation/speculation.py: build/bench/llama-server. About ten minutes on two
# cores. The source is the one that llama-cpp-python of this version carries.
#
#   bash tests/bench/speculation/llama_server.sh && python3 tests/bench/speculation/speculation.py --llama-server build/bench/llama-server
set -eu
version=0.3.36
cd "$(dirname "$0")/../../.."
work=build/bench/llama
mkdir -p "$work"
if [ ! -d "$work/llama_cpp_python-$version" ]; then
    [ -x "$work/venv/bin/pip" ] || python3 -m venv "$work/venv"
    "$work/venv/bin/pip" download --quiet --no-deps --no-binary llama-cpp-python -d "$work" "llama-cpp-python==$version"
    tar -xzf "$work/llama_cpp_python-$version.tar.gz" -C "$work"
fi
cmake -S "$work/llama_cpp_python-$version/vendor/llama.cpp" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
    -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF
cmake --build "$work/build" --target llama-server
cp "$work/build/bin/llama-server" build/bench/llama-server
