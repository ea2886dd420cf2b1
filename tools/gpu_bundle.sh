#!/usr/bin/env bash
# Packs the programs that tools/gpu_check.sh runs, and the libraries they load, for a machine with a GPU that has no compiler.
# Models, goldens and scripts come from the source tree. For an H100 or H200 (sm_90a); for another GPU, --build of a
# build for it.
#
#   bash tools/gpu_bundle.sh OUT.tar.xz
#   tar -C TREE -xf OUT.tar.xz && bash TREE/tools/gpu_check.sh results       TREE: a copy of the source tree; no network is needed
#   bash tools/gpu_bundle.sh OUT.tar.xz --emulator BUILD    of a build of the preset simt: a dry run of all this, without a GPU
#   bash tools/gpu_bundle.sh OUT.tar.xz --build BUILD       of a build that has libquire_cuda.so; without it: builds into build-gpu
#
# The bundle and the tracked files of the tree together have at most 63 MiB. This machine's C library goes along: gpu_check.sh
# uses it where the other machine's is older. Of CUDA nothing goes along but what is linked in. libcurl and OpenSSL are
# replaced by stubs whose calls fail: the check downloads nothing and serves without TLS. libcurl would bring LDAP, Kerberos
# and more; OpenSSL has 1.7 MiB.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh
usage="usage: bash tools/gpu_bundle.sh OUT.tar.xz [--emulator BUILD | --build BUILD]"
[ $# = 1 ] || { [ $# = 3 ] && { [ "$2" = --emulator ] || [ "$2" = --build ]; }; } || quire_die "$usage"
kind=${2:-}
case $1 in -*) quire_die "$usage" ;; /*) out=$1 ;; *) out=$PWD/$1 ;; esac
build=${3:-build-gpu}
MOST_KIB=65408 # 64 MiB can be sent; 128 KiB of them are left for the archive
if [ "$kind" = --emulator ]; then
    programs=quire
    tests="kernels_test kernels_step_test kernels_group_test"
    built_with=$(gcc --version | head -1)
else
    programs="quire gpu_limits gpu_fragments gpu_probe gpu_nccl"
    tests="kernels_test kernels_gemm_mma_test kernels_sample_test kernels_sample_edges_test kernels_step_test kernels_group_test"
    for name in golden bits invariance sampling requests draft_model vectors; do tests="$tests engine_${name}_cuda_test"; done
fi

log=$(mktemp)
stage=$(mktemp -d)
trap 'rm -rf "$stage" "$log"' EXIT
built_with=${built_with:-$(gcc --version | head -1)}
if [ -z "$kind" ]; then
    quire_setup build test cuda
    quire_say "building into build-gpu"
    built_with="$(gcc --version | head -1), $("$(quire_find_nvcc)" --version | sed -n 's/^Cuda compilation tools, //p')"
    # An rpath for all that is loaded, and not a runpath, which is the program's own libraries': no environment is needed.
    {
        cmake -G Ninja -S . -B build-gpu -DCMAKE_BUILD_TYPE=Release -DQUIRE_CUDA=on -DQUIRE_CUDA_ARCHITECTURES=90a-real -DQUIRE_TEST_ROOT=. \
            -DCMAKE_BUILD_RPATH='$ORIGIN/../lib' -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
            -DQUIRE_CARGO="$QUIRE_CARGO" -DQUIRE_RUSTC="$QUIRE_RUSTC" -DQUIRE_CARGO_TARGET_DIR="$PWD/build/cargo" &&
            cmake --build build-gpu --target quire_cuda $programs $tests
    } >"$log" 2>&1 || { tail -40 "$log" >&2; quire_die "the build failed (its last lines stand above)"; }
fi

to=$stage/gpu-bundle
mkdir -p "$to/bin" "$to/lib/libc"
for name in $programs $tests; do
    path=$(find "$build" -name "$name" -type f -perm -u+x | head -1)
    [ -n "$path" ] || quire_die "there is no $name in $build"
    cp "$path" "$to/bin/$name"
done
[ "$kind" = --emulator ] || cp "$build/libquire_cuda.so" "$to/lib/"

# A library in place of one that no step of gpu_check.sh calls, with the functions that our programs and USERS need to be
# loaded: each returns 0, an error where a handle is expected.
stub() { # soname [user...]: users are libraries
    local soname=$1 real users="" name
    real=$(ldd "$to"/bin/* | awk -v name="$soname" '$1 == name { print $3; exit }')
    [ -n "$real" ] || return 0
    for name in "${@:2}"; do users="$users $(ldd "$to"/bin/* | awk -v name="$name" '$1 == name { print $3; exit }')"; done
    nm -D --undefined-only "$to"/bin/* $users | sed -nE 's/.* ([A-Za-z_0-9]+@[A-Z_0-9.]+)$/\1/p' | sort -u >"$stage/used"
    nm -D --defined-only "$real" | sed -nE 's/.* [TWi] ([A-Za-z_0-9]+)@@([A-Z_0-9.]+)$/\1@\2/p' | sort -u | comm -12 "$stage/used" - >"$stage/names"
    sed -E 's/(.*)@.*/void *\1(void); void *\1(void) { return 0; }/' "$stage/names" >"$stage/stub.c"
    for name in $(sed 's/.*@//' "$stage/names" | sort -u); do
        echo "$name { global:"
        sed -n "s/@$name\$/;/p" "$stage/names"
        echo "};"
    done >"$stage/stub.map"
    gcc -shared -fPIC -O1 -fno-builtin -o "$to/lib/$soname" -Wl,-soname,"$soname" -Wl,--version-script="$stage/stub.map" "$stage/stub.c"
}
stubs="libcurl.so.4 libssl.so.3 libcrypto.so.3"
for name in $stubs; do stub "$name" libevent_openssl-2.1.so.7; done
# The C library's own libraries only where they replace the other machine's; all others beside the programs.
LD_LIBRARY_PATH="$to/lib" ldd "$to"/bin/* $(ls "$to"/lib/*.so 2>/dev/null) | awk '$3 ~ /^\// { print $3 } $1 ~ /^\/.*ld-linux/ { print $1 }' | sort -u | while read -r library; do
    case ${library##*/} in
        ld-linux* | libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.*) cp -L "$library" "$to/lib/libc/" ;;
        libquire_cuda.so) ;;
        *) case " $stubs " in *" ${library##*/} "*) continue ;; esac
            cp -L "$library" "$to/lib/" ;;
    esac
done
for name in libdl.so.2 libpthread.so.0 librt.so.1; do # NVIDIA's driver asks for them by name
    [ -e "$to/lib/libc/$name" ] || cp -L "$(dirname "$(ldd /bin/sh | awk '$1 ~ /^libc\.so/ { print $3 }')")/$name" "$to/lib/libc/"
done
strip $([ "$kind" = --emulator ] && echo --strip-debug || echo --strip-unneeded) "$to"/bin/* "$to"/lib/*.so* 2>/dev/null
{
    echo "Quire $(git rev-parse --short HEAD 2>/dev/null || echo "of no repository")$(git diff --quiet HEAD 2>/dev/null || echo ", with changes")"
    echo "built $(date -u +%Y-%m-%dT%H:%MZ) with $built_with"
    echo "C library $(ldd --version | head -1 | grep -oE '[0-9.]+$')"
    echo
    (cd "$to" && find . -type f ! -name MANIFEST -exec sha256sum {} + | sort -k 2)
} >"$to/MANIFEST"
case $out in # -9 has room for all programs, which share most of their code: 13.7 MiB for 15.5
    *.xz) tar -C "$stage" -cf - gpu-bundle | xz -9 >"$out" ;;
    *) tar -C "$stage" -caf "$out" gpu-bundle ;;
esac
bytes=$(stat -c %s "$out")
tree=$(git ls-files -z 2>/dev/null | xargs -0 -r stat -c %s -- 2>/dev/null | awk '{ n += $1 } END { print n + 0 }')
quire_say "$out: $((bytes >> 20)) MiB, and $((tree >> 20)) MiB of tracked files"
[ "$kind" != --emulator ] || exit 0 # an emulator's are of another size
[ $((bytes + tree)) -le $((MOST_KIB << 10)) ] || quire_die "together that is $(((bytes + tree) >> 10)) KiB, and more than $MOST_KIB cannot be sent to a machine"
