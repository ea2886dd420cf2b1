#!/usr/bin/env bash
# Packs what a machine with a GPU needs to run tools/gpu_check.sh: programs, tests, models and the libraries they load, which
# a bare machine with NVIDIA's driver need not have. For an H100 or H200 alone (sm_90a, and PTX for others), and small enough to be
# sent: at most 55 MiB packed, and 60 MiB as files.
#
#   bash tools/gpu_bundle.sh OUT.tar.gz
#   tar xf OUT.tar.gz && bash quire-gpu/tools/gpu_check.sh results
#   bash tools/gpu_bundle.sh OUT.tar.gz --emulator BUILD       of a build of the preset simt: a dry run of all this, without a GPU
#
# Builds into build-gpu, installing what is missing. The C library of this machine goes along: gpu_check.sh takes
# it where the other machine's is older. Of CUDA nothing goes along but what is linked in.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh
usage="usage: bash tools/gpu_bundle.sh OUT.tar.gz [--emulator BUILD]"
[ $# = 1 ] || { [ $# = 3 ] && [ "$2" = --emulator ]; } || quire_die "$usage"
case $1 in -*) quire_die "$usage" ;; /*) out=$1 ;; *) out=$PWD/$1 ;; esac
build=${3:-build-gpu}
if [ $# = 3 ]; then
    programs=quire
    tests="kernels_test kernels_step_test kernels_group_test"
    built_with=$(gcc --version | head -1)
else
    programs="quire gpu_limits gpu_fragments gpu_probe"
    tests="kernels_test kernels_sample_test kernels_sample_edges_test kernels_step_test kernels_group_test"
    for name in golden bits invariance sampling requests; do tests="$tests engine_${name}_cuda_test"; done
fi

log=$(mktemp)
stage=$(mktemp -d)
trap 'rm -rf "$stage" "$log"' EXIT
if [ $# = 1 ]; then
    quire_setup build test cuda
    quire_say "building into build-gpu"
    built_with="$(gcc --version | head -1), $("$(quire_find_nvcc)" --version | sed -n 's/^Cuda compilation tools, //p')"
    # An rpath for all that is loaded, and not a runpath, which is the program's own libraries': no environment is needed.
    {
        cmake -G Ninja -S . -B build-gpu -DCMAKE_BUILD_TYPE=Release -DQUIRE_CUDA=on -DQUIRE_CUDA_ARCHITECTURES=90a -DQUIRE_TEST_ROOT=. \
            -DCMAKE_BUILD_RPATH='$ORIGIN/../lib' -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
            -DQUIRE_CARGO="$QUIRE_CARGO" -DQUIRE_RUSTC="$QUIRE_RUSTC" -DQUIRE_CARGO_TARGET_DIR="$PWD/build/cargo" &&
            cmake --build build-gpu --target quire_cuda $programs $tests
    } >"$log" 2>&1 || { tail -40 "$log" >&2; quire_die "the build failed (its last lines stand above)"; }
fi

to=$stage/quire-gpu
mkdir -p "$to/bin" "$to/lib/libc" "$to/tools" "$to/tests/goldens" "$to/tests/engine"
for name in $programs $tests; do
    path=$(find "$build" -name "$name" -type f -perm -u+x | head -1)
    [ -n "$path" ] || quire_die "there is no $name in $build"
    cp "$path" "$to/bin/$name"
done
[ $# = 3 ] || cp build-gpu/libquire_cuda.so "$to/lib/"
# The C library's own libraries only where they replace the other machine's; all others beside the programs.
ldd "$to"/bin/* $(ls "$to"/lib/*.so 2>/dev/null) | awk '$3 ~ /^\// { print $3 } $1 ~ /^\/.*ld-linux/ { print $1 }' | sort -u | while read -r library; do
    case ${library##*/} in
        ld-linux* | libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.*) cp -L "$library" "$to/lib/libc/" ;;
        *) cp -L "$library" "$to/lib/" ;;
    esac
done
for name in libdl.so.2 libpthread.so.0 librt.so.1; do # NVIDIA's driver asks for them by name
    [ -e "$to/lib/libc/$name" ] || cp -L "$(dirname "$(ldd /bin/sh | awk '$1 ~ /^libc\.so/ { print $3 }')")/$name" "$to/lib/libc/"
done
strip $([ $# = 1 ] && echo --strip-unneeded || echo --strip-debug) "$to"/bin/* "$to"/lib/*.so* 2>/dev/null
cp -r tests/goldens/models "$to/tests/goldens/"
cp tests/engine/bits.txt "$to/tests/engine/"
mkdir -p "$to/tools/demo_model"
cp -r tools/demo_model/model "$to/tools/demo_model/"
cp tools/gpu_check.sh tools/gpu_model.py tools/gpu_peers.py LICENSE "$to/tools/"
{
    echo "Quire $(git rev-parse --short HEAD 2>/dev/null || echo "of no repository")$(git diff --quiet HEAD 2>/dev/null || echo ", with changes")"
    echo "built $(date -u +%Y-%m-%dT%H:%MZ) with $built_with"
    echo "C library $(ldd --version | head -1 | grep -oE '[0-9.]+$')"
    echo
    (cd "$to" && find . -type f ! -name MANIFEST -exec sha256sum {} + | sort -k 2)
} >"$to/MANIFEST"
unpacked=$(du -sb "$to" | cut -f1)
tar -C "$stage" -caf "$out" quire-gpu
bytes=$(stat -c %s "$out")
quire_say "$out: $((bytes >> 20)) MiB, $((unpacked >> 20)) MiB of files"
[ $# = 1 ] || exit 0 # an emulator's are of another size
[ "$bytes" -le $((55 << 20)) ] || quire_die "that is more than 55 MiB"
[ "$unpacked" -le $((60 << 20)) ] || quire_die "as files that is more than 60 MiB"
