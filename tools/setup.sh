#!/usr/bin/env bash
# Installs what Quire's build needs and this machine lacks; with `demo`, `test`, `clients`, `fuzz`, `cuda` or `docs` also
# what those need.
#
#   bash tools/setup.sh [build] [demo] [test] [clients] [fuzz] [cuda] [docs]
#
# This is the one list of what Quire takes from the distribution, and of the CUDA compiler that `cuda` takes from NVIDIA's
# Python packages where the machine has no toolkit. Debian 12 or later and Ubuntu 24.04 or later. Says
# what it installs before it does, asks nothing, does nothing twice, and changes no setting. Other scripts
# source it and call quire_setup; afterwards QUIRE_CARGO and QUIRE_RUSTC name the Rust tools to build with.

QUIRE_PACKAGES_build="gcc g++ make cmake ninja-build pkg-config libevent-dev libssl-dev libjansson-dev libsodium-dev libhwloc-dev libcurl4-openssl-dev libsqlite3-dev libhiredis-dev libyaml-dev ca-certificates"
# What the build uses where it is there: brought with the rest to a machine that lacks some of it, asked of no other.
QUIRE_PACKAGES_optional="libedit-dev"
QUIRE_PACKAGES_demo="curl jq"
QUIRE_PACKAGES_test="libcmocka-dev python3 python3-venv openssl ccache redis-server"
# Proxies, what the examples of the documentation use, the two MPIs that ranks are tried with, namespaces of networks, and
# what a wheel is packed with.
QUIRE_PACKAGES_clients="haproxy nginx-light curl jq groff-base python3-wheel libopenmpi-dev openmpi-bin libmpich-dev mpich iproute2"
# For the page at /ui. Ubuntu's are empty: there, put Chrome and its chromedriver on PATH.
command -v chromedriver >/dev/null || ! grep -q '^ID=debian' /etc/os-release || QUIRE_PACKAGES_clients="$QUIRE_PACKAGES_clients chromium chromium-driver"
QUIRE_PACKAGES_fuzz="clang libclang-rt-dev"
# What tools/package.sh makes packages with.
QUIRE_PACKAGES_package="dpkg-dev binutils patchelf zstd python3 python3-wheel"
# What tools/package_test.sh makes bare trees with.
QUIRE_PACKAGES_trees="debootstrap curl"
# NVIDIA's packages: the compiler, its headers and the static runtime. 0.3 GB on disk.
QUIRE_CUDA_PACKAGES="cuda-toolkit[nvcc,cudart,cccl]==13.0.*"
# The disassembler, for tools/sass_report.py: 6 MB. Wheels begin with 13.2; they read what any earlier nvcc made.
QUIRE_SASS_PACKAGES="nvidia-cuda-nvdisasm==13.5.* nvidia-cuda-cuobjdump==13.5.*"
# The least Rust that the crates in text/Cargo.lock build with (text/Cargo.toml says the same).
QUIRE_RUST_MIN="1.87"

quire_say() { printf 'quire: %s\n' "$*" >&2; }
quire_die() { printf 'quire: %s\n' "$*" >&2; exit 1; }

quire_as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
    else
        quire_die "packages are missing, and this needs root or a sudo that asks no password. Run it as root, or have someone run: apt-get install $QUIRE_MISSING"
    fi
}

quire_is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

quire_apt_update() {
    [ -n "${QUIRE_APT_FRESH:-}" ] && return
    quire_say "refreshing the package lists"
    quire_as_root apt-get update -qq >/dev/null || quire_die "apt-get update failed: is there a network?"
    QUIRE_APT_FRESH=1
}

quire_install() {
    QUIRE_MISSING="$*"
    [ -n "$QUIRE_MISSING" ] || return 0
    quire_say "installing from the distribution: $QUIRE_MISSING"
    quire_apt_update
    local log; log=$(mktemp)
    if ! quire_as_root apt-get install -y -qq --no-install-recommends $QUIRE_MISSING >"$log" 2>&1; then
        tail -5 "$log" >&2
        rm -f "$log"
        quire_die "apt-get could not install: $QUIRE_MISSING"
    fi
    rm -f "$log"
}

# Prints 1.85 for "rustc 1.85.1 (...)"; nothing when there is no such program.
quire_rust_version() { "$1" --version 2>/dev/null | sed -nE 's/^(rustc|cargo) ([0-9]+\.[0-9]+).*/\2/p'; }
quire_at_least() { [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -1)" = "$2" ]; }

quire_use_rust() { # cargo rustc: remembers the pair when both are recent enough
    quire_at_least "$(quire_rust_version "$1")" "$QUIRE_RUST_MIN" || return 1
    quire_at_least "$(quire_rust_version "$2")" "$QUIRE_RUST_MIN" || return 1
    QUIRE_CARGO=$(command -v "$1")
    QUIRE_RUSTC=$(command -v "$2")
    export QUIRE_CARGO QUIRE_RUSTC
}

# Rust: the one on PATH if recent enough, else the newest that the distribution has.
quire_setup_rust() {
    quire_use_rust cargo rustc && return
    [ -x "$HOME/.cargo/bin/cargo" ] && quire_use_rust "$HOME/.cargo/bin/cargo" "$HOME/.cargo/bin/rustc" && return
    local v; for v in $(ls /usr/bin/cargo-1.* 2>/dev/null | sed 's/.*cargo-//' | sort -rV); do
        quire_use_rust "/usr/bin/cargo-$v" "/usr/bin/rustc-$v" && return
    done
    quire_say "the Rust on this machine is missing or older than $QUIRE_RUST_MIN"
    quire_apt_update
    # Debian 12 keeps a current Rust as cargo-web and rustc-web, Ubuntu as cargo-1.NN and rustc-1.NN.
    local versions; versions=$(apt-cache search --names-only '^cargo-1\.[0-9]+$' | awk '{print $1}' | sed 's/cargo-//' | sort -rV)
    local c candidate
    for c in cargo $(for v in $versions; do echo "cargo-$v"; done) cargo-web; do
        candidate=$(apt-cache policy "$c" 2>/dev/null | sed -nE 's/^ +Candidate: ([0-9]+\.[0-9]+).*/\1/p')
        if quire_at_least "$candidate" "$QUIRE_RUST_MIN"; then
            quire_install "$c" "${c/cargo/rustc}"
            hash -r
            case $c in
                cargo-1.*) quire_use_rust "/usr/bin/$c" "/usr/bin/${c/cargo/rustc}" && return ;;
                *) quire_use_rust /usr/bin/cargo /usr/bin/rustc && return ;;
            esac
        fi
    done
    quire_die "no Rust $QUIRE_RUST_MIN or later is to be had from the distribution; install one from https://rustup.rs and run this again"
}

# Prints the nvcc, 12 or later, that the build will find (kernels/cuda/toolchain/toolkit.cmake looks in the same places).
quire_find_nvcc() {
    local root nvcc major
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    for nvcc in "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "${CUDA_PATH:+$CUDA_PATH/bin/nvcc}" "$(command -v nvcc)" \
        /usr/local/cuda/bin/nvcc "$root"/build/cuda/lib/python3*/site-packages/nvidia/cu1[2-9]/bin/nvcc; do
        [ -x "$nvcc" ] || continue
        major=$("$nvcc" --version 2>/dev/null | sed -nE 's/.*release ([0-9]+)\..*/\1/p')
        [ "${major:-0}" -ge 12 ] && echo "$nvcc" && return
    done
    return 1
}

# CUDA: the toolkit of the machine, else NVIDIA's Python packages in an environment of their own in build/cuda.
quire_setup_cuda() {
    local root nvcc
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    if nvcc=$(quire_find_nvcc); then
        quire_say "CUDA: $nvcc"
        case $nvcc in
            "$root"/build/cuda/*) # one that was installed before there was a disassembler in it
                [ -x "${nvcc%nvcc}nvdisasm" ] && [ -x "${nvcc%nvcc}cuobjdump" ] ||
                    "$root/build/cuda/bin/pip" install -q --disable-pip-version-check --no-cache-dir $QUIRE_SASS_PACKAGES ||
                    quire_say "NVIDIA's disassembler could not be installed: tools/sass_report.py will not run"
                ;;
        esac
        return
    fi
    if command -v dpkg-query >/dev/null && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then quire_install python3-venv; fi
    quire_say "installing NVIDIA's compiler into build/cuda (Python packages, 0.3 GB on disk, NVIDIA's licence): $QUIRE_CUDA_PACKAGES $QUIRE_SASS_PACKAGES"
    rm -rf "$root/build/cuda"
    mkdir -p "$root/build"
    python3 -m venv "$root/build/cuda" &&
        "$root/build/cuda/bin/pip" install -q --disable-pip-version-check --no-cache-dir "$QUIRE_CUDA_PACKAGES" $QUIRE_SASS_PACKAGES ||
        { rm -rf "$root/build/cuda"; quire_die "NVIDIA's packages could not be installed: is there a network? A CUDA toolkit, 12 or later, does as well: CUDA_HOME names it"; }
    nvcc=$(quire_find_nvcc) || quire_die "NVIDIA's packages are in build/cuda, but no nvcc is where it should be"
    quire_say "CUDA: $nvcc"
}

# The site's generator and the checks of text, from PyPI, in an environment of their own in build/docs-venv.
quire_setup_docs() {
    local root list venv
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    list=$root/tools/docs/requirements.txt
    venv=$root/build/docs-venv
    cmp -s "$list" "$venv/requirements.txt" && return
    if command -v dpkg-query >/dev/null && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then quire_install python3-venv; fi
    quire_say "installing the documentation tools of tools/docs/requirements.txt into build/docs-venv"
    rm -rf "$venv"
    mkdir -p "$root/build"
    python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check --no-cache-dir -r "$list" ||
        { rm -rf "$venv"; quire_say "the documentation tools could not be installed: is there a network?"; return 1; }
    cp "$list" "$venv/requirements.txt"
}

# quire_setup build [demo] [test] [clients] [fuzz] [cuda] [docs]
quire_setup() {
    case " $* " in *" cuda "*) quire_setup_cuda ;; esac
    case " $* " in *" docs "*) quire_setup_docs ;; esac
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        quire_say "this is neither Debian nor Ubuntu: nothing is installed for you. Needed are: $QUIRE_PACKAGES_build (by your distribution's names), and Rust $QUIRE_RUST_MIN or later"
        quire_use_rust cargo rustc || quire_die "cargo and rustc $QUIRE_RUST_MIN or later are not on PATH"
        return
    fi
    local kind package list missing=""
    for kind in "$@"; do
        list="QUIRE_PACKAGES_$kind"
        for package in ${!list:-}; do
            quire_is_installed "$package" || case " $missing " in *" $package "*) ;; *) missing="$missing $package" ;; esac
        done
    done
    quire_install $missing ${missing:+$QUIRE_PACKAGES_optional}
    quire_setup_rust
}

# The number of the step on a terminal, from ninja's output on standard input.
quire_show_steps() {
    local line step='^\[[0-9]+/[0-9]+\]'
    while IFS= read -r line; do
        if [ -t 2 ] && [[ $line =~ $step ]]; then printf '\r%s ' "${BASH_REMATCH[0]}" >&2; fi
    done
    [ ! -t 2 ] || printf '\r\033[K' >&2
}

# quire_build PRESET ON|OFF [TARGET]: with tests or without; configures when needed (also with QUIRE_CMAKE_OPTIONS, words) and
# builds. Shows the number of the step on a terminal, and the output if it fails.
quire_build() {
    local root preset log
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    preset=$1
    log=$(mktemp)
    (set -o pipefail
     cd "$root" &&
        { cmake --preset "$preset" -DQUIRE_CARGO="$QUIRE_CARGO" -DQUIRE_RUSTC="$QUIRE_RUSTC" -DBUILD_TESTING="$2" ${QUIRE_CMAKE_OPTIONS:-} &&
        cmake --build --preset "$preset" ${3:+--target "$3"}; } 2>&1 | tee "$log" | quire_show_steps) ||
        { tail -40 "$log" >&2; rm -f "$log"; quire_die "the $preset build failed (its last lines stand above)"; }
    rm -f "$log"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    set -eu
    [ $# -gt 0 ] || set -- build
    for kind in "$@"; do
        case $kind in
            build | demo | test | clients | fuzz | cuda | docs) ;;
            *) quire_die "usage: bash tools/setup.sh [build] [demo] [test] [clients] [fuzz] [cuda] [docs]" ;;
        esac
    done
    quire_setup "$@"
    quire_say "ready: $QUIRE_CARGO ($(quire_rust_version "$QUIRE_CARGO"))"
fi
