#!/usr/bin/env bash
# Makes the packages that people install, so that they need not compile: into build/packages.
#
#   bash tools/package.sh                              deb, tar and wheel, from a build of its own in build-package
#   bash tools/package.sh deb wheel                    these only, of: deb, tar, wheel, image
#   bash tools/package.sh --build build [KIND...]      of a build that exists: for tests
#
# deb: quire_*.deb and quire-demo_*.deb, for Debian 12, Ubuntu 24.04 and later. tar: quire-VERSION-linux-ARCH.tar.zst, which
# runs from any folder: libraries that not every distribution has are in its lib/quire. wheel: quire_llm-*.whl, the same
# for pip. image: packaging/Containerfile, by podman, docker or buildah, as an OCI archive where the tool can write one.
# Every package lists the licences of what it contains. Of a clean clone, on one distribution, two runs write equal
# deb, tar and wheel files: dates are the commit's, and no path of the build is in them.
#
# There is one program for all processors: it chooses its kernels when it runs. The library for GPUs goes along where a
# CUDA toolkit is found (tools/setup.sh cuda).
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh
. tools/package/bundle.sh
. tools/package/deb.sh
. tools/package/wheel.sh

build=""
kinds=""
while [ $# -gt 0 ]; do
    case $1 in
        --help) sed -nE '2,/^set /s/^# ?//p' tools/package.sh; exit ;;
        --build) [ $# -ge 2 ] || quire_die "--build needs the folder of a build"; build=$2; shift ;;
        deb | tar | wheel | image) kinds="$kinds $1" ;;
        *) quire_die "there is no kind of package '$1'; there are: deb, tar, wheel, image" ;;
    esac
    shift
done
kinds=${kinds:-deb tar wheel}
out=$PWD/build/packages
mkdir -p "$out"

if [ "${kinds# }" != image ]; then # an image is built in one of its own
    command -v dpkg-query >/dev/null || quire_die "packages are made on Debian or Ubuntu, whose libraries go into them"
    quire_setup build package
fi

if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) || quire_die "this tree is no git repository: set SOURCE_DATE_EPOCH, and QUIRE_COMMIT to the commit's hash"
fi
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022

# quire_set_times ROOT: all times of the commit, and modes that do not depend on the builder's umask.
quire_set_times() {
    chmod -R u=rwX,go=rX "$1"
    find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# A build of its own: no tests, no option of the developer's build, and no path in what it makes. A compiler cache may
# help if it does not rewrite paths.
build_program() {
    build=build-package
    local cargo_home=${CARGO_HOME:-$HOME/.cargo} maps log
    maps="-ffile-prefix-map=$PWD=. -ffile-prefix-map=$cargo_home=/cargo"
    log=$(mktemp)
    quire_say "building into $build, about 5 minutes of CPU time; progress: tail -f $log"
    env -u LDFLAGS -u CCACHE_BASEDIR CFLAGS="$maps" CXXFLAGS="$maps" \
        RUSTFLAGS="--remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$PWD=." bash -e -c '
        cmake -G Ninja -S . -B "$0" -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DQUIRE_COMMIT="${QUIRE_COMMIT:-}" \
            -DQUIRE_CARGO="$QUIRE_CARGO" -DQUIRE_RUSTC="$QUIRE_RUSTC" -DQUIRE_CUDA=auto
        targets="quire man"
        ! ninja -C "$0" -t targets all | grep -q "^quire_cuda:" || targets="$targets quire_cuda"
        cmake --build "$0" --target $targets' "$build" >"$log" 2>&1 ||
        { tail -40 "$log" >&2; rm -f "$log"; quire_die "the build failed (its last lines stand above)"; }
    rm -f "$log"
}

# The installed tree, once as the distribution has it and once with its libraries.
stage_trees() {
    local log=$work/install.log
    [ -x "$build/quire" ] || quire_die "there is no quire in $build"
    DESTDIR=$work/plain cmake --install "$build" --prefix /usr --component quire --strip >"$log" 2>&1 ||
        { tail -5 "$log" >&2; quire_die "the files of $build could not be installed"; }
    plain=$work/plain/usr
    [ -f "$plain/lib/libquire_cuda.so" ] || quire_say "without the library for GPUs: $build has none"
    hiredis=$(sed -n 's/^QUIRE_HIREDIS_STATIC:[A-Z]*=\(\/.*\)/\1/p' "$build/CMakeCache.txt")
    python3=/usr/bin/python3
    $python3 tools/package/licences.py "$work/plain.txt" "$QUIRE_CARGO" $hiredis
    case " $kinds " in *" tar "* | *" wheel "*) ;; *) return ;; esac
    whole=$work/whole
    cp -a "$plain" "$whole"
    local libraries
    libraries=$(quire_needed "$whole")
    quire_bundle "$whole" $libraries
    $python3 tools/package/licences.py "$work/whole.txt" "$QUIRE_CARGO" $hiredis $libraries
}

make_tar() {
    local name=quire-$version-linux-$(uname -m)
    cp -a "$whole" "$work/$name"
    cp "$work/whole.txt" "$work/$name/share/doc/quire/THIRD-PARTY.txt"
    quire_set_times "$work/$name"
    tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --format=ustar -cf - "$name" | zstd -q -12 -T1 -f -o "$out/$name.tar.zst"
    quire_say "$out/$name.tar.zst: needs glibc $(quire_glibc "$work/$name") or later"
}

make_image() {
    local tool archive=$out/quire-$version-oci.tar
    # `info` fails where the program is there and cannot build: docker without its daemon.
    for tool in podman docker buildah ""; do [ -z "$tool" ] || ! "$tool" info >/dev/null 2>&1 || break; done
    [ -n "$tool" ] || quire_die "an image needs podman, docker or buildah, and 'info' of each failed: install one, or start docker's daemon"
    $tool build -f packaging/Containerfile --build-arg VERSION="$version" --build-arg COMMIT="$(git rev-parse HEAD)" \
        --build-arg EPOCH="$SOURCE_DATE_EPOCH" -t "quire:$version" . ||
        quire_die "$tool could not build the image"
    case $tool in
        podman) podman save -q --format oci-archive -o "$archive" "quire:$version" ;;
        buildah) buildah push -q "quire:$version" "oci-archive:$archive" ;;
        *) quire_say "docker keeps the image quire:$version: docker save writes it to a file"; return ;;
    esac
    quire_say "$archive"
}

version=$(sed -nE 's/^project\(quire VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "${kinds# }" != image ]; then
    [ -n "$build" ] || build_program
    stage_trees
fi
for kind in $kinds; do
    case $kind in
        deb) quire_deb "$plain" "$work/plain.txt" "$out" ;;
        tar) make_tar ;;
        wheel) quire_wheel "$whole" "$work/whole.txt" "$out" ;;
        image) make_image ;;
    esac
done
(cd "$out" && ls -l --block-size=K | awk 'NR > 1 { print "quire: build/packages/" $NF ": " $5 }' >&2)
