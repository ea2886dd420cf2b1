#!/usr/bin/env bash
# Installs and uses each package of tools/package.sh in bare trees of Debian 12 and Ubuntu 24.04, made by debootstrap. Needs
# root, chroot and a network; ends with status 77, and says so, where it cannot run.
#
#   bash tools/package_test.sh                         packages a build of its own (tools/package.sh), then tries them
#   bash tools/package_test.sh --build build           packages that build
#   bash tools/package_test.sh --build build debian    in one of the trees: debian, ubuntu
#   bash tools/package_test.sh --reproducible          instead: builds two clones in folders of different names, a quarter of an
#                                                      hour of processor time, and compares the packages' bytes
#
# A tree is kept as build/trees/NAME.tar, so that the next run does not make it again. QUIRE_DEBIAN_MIRROR and
# QUIRE_UBUNTU_MIRROR name other mirrors.
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/setup.sh
repository=$PWD
build=""
trees=""
reproducible=""
while [ $# -gt 0 ]; do
    case $1 in
        --help) sed -nE '2,/^set /s/^# ?//p' tools/package_test.sh; exit ;;
        --build) [ $# -ge 2 ] || quire_die "--build needs the folder of a build"; build=$2; shift ;;
        --reproducible) reproducible=1 ;;
        debian | ubuntu) trees="$trees $1" ;;
        *) quire_die "there is no tree '$1'; there are: debian, ubuntu" ;;
    esac
    shift
done
trees=${trees:-debian ubuntu}
cannot() { quire_say "could not run here: $*"; exit 77; }

work=$(mktemp -d /var/tmp/quire-packages.XXXXXX)
trap 'rm -rf "$work"' EXIT
bad=0
want() { # what, command...
    local what=$1
    shift
    "$@" && echo "ok   $what" || { echo "FAILED: $what"; bad=1; }
}

# ---- two builds, equal bytes ----

if [ -n "$reproducible" ]; then
    for name in one another/one; do
        git clone -q "$repository" "$work/$name" || exit 1
        bash "$work/$name/tools/package.sh" || exit 1
    done
    for package in "$work"/one/build/packages/*; do
        want "equal bytes: ${package##*/}" cmp "$package" "$work/another/one/build/packages/${package##*/}"
    done
    exit $bad
fi

# ---- bare trees ----

[ "$(id -u)" = 0 ] || cannot "bare trees need root"
unshare -m true 2>/dev/null || cannot "bare trees need mounts, which this machine does not allow"
quire_setup build package trees
machine=$(dpkg --print-architecture)

# Ubuntu's keys, which Debian has no package of, are in a package of Ubuntu's: this one, and no other.
UBUNTU_KEYS=pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb
UBUNTU_KEYS_SHA256=36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8
ubuntu_keys() {
    [ ! -f /usr/share/keyrings/ubuntu-archive-keyring.gpg ] || { cp /usr/share/keyrings/ubuntu-archive-keyring.gpg "$work/ubuntu.gpg"; return; }
    curl -sSf --max-time 60 -o "$work/keys.deb" "$ubuntu_mirror/$UBUNTU_KEYS" &&
        echo "$UBUNTU_KEYS_SHA256  $work/keys.deb" | sha256sum --status -c &&
        dpkg-deb --fsys-tarfile "$work/keys.deb" | tar -xO ./usr/share/keyrings/ubuntu-archive-keyring.gpg >"$work/ubuntu.gpg"
}

debian_mirror=${QUIRE_DEBIAN_MIRROR:-http://deb.debian.org/debian}
ubuntu_mirror=${QUIRE_UBUNTU_MIRROR:-$([ "$machine" = amd64 ] && echo http://archive.ubuntu.com/ubuntu || echo http://ports.ubuntu.com/ubuntu-ports)}
make_tree() { # name: build/trees/NAME.tar
    local root=$work/bare-$1 scripts=/usr/share/debootstrap/scripts
    case $1 in
        debian) debootstrap --variant=minbase bookworm "$root" "$debian_mirror" ;;
        # An older debootstrap does not know the name; all of Ubuntu's have one script.
        ubuntu) ubuntu_keys && debootstrap --variant=minbase --components=main,universe --keyring="$work/ubuntu.gpg" \
            noble "$root" "$ubuntu_mirror" $([ -e $scripts/noble ] || echo gutsy) ;;
    esac >"$work/$1.log" 2>&1 || { tail -3 "$work/$1.log" >&2; return 1; }
    mkdir -p build/trees
    tar -C "$root" --exclude './dev/*' --exclude './var/cache/apt/archives/*.deb' -cf "build/trees/$1.part" . && mv "build/trees/$1.part" "build/trees/$1.tar"
    rm -rf "$root"
}

root=""
inside() { # script: in the tree, with /proc and /dev, which end with it
    unshare -m bash -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
        exec chroot "$0" /usr/bin/env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb DEBIAN_FRONTEND=noninteractive ${1:+http_proxy="$1"} \
        bash -c "$2"' "$root" "${http_proxy:-}" "$1" </dev/null
}
apt() { # packages; those that are no file only serve the test, and need not reach the disk
    case $1 in /*) ;; *) set -- -o Dpkg::Options::=--force-unsafe-io "$@" ;; esac
    inside "apt-get install -y -qq --no-install-recommends $*" >"$root.log" 2>&1 || { tail -5 "$root.log" >&2; return 1; }
}
says() { # text script: what the script prints has this text
    local printed
    printed=$(inside "$2" 2>"$root.err")
    case $printed in *"$1"*) ;; *) printf '%s\n' "$printed" | tail -5 >&2; tail -5 "$root.err" >&2; return 1 ;; esac
}
count_ms() { # sets ms: the processor time of all commands that have ended; a subshell would count only its own
    times >"$work/times"
    ms=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); ms += (t[1] * 60 + t[2]) * 1000 } printf "%d", ms }' "$work/times")
}
seconds_of() { # what goal command...: prints how long it took; its status is the command's, however long it took
    local what=$1 goal=$2 started=$(date +%s%N) before ms
    shift 2
    count_ms
    before=$ms
    "$@"
    local status=$?
    count_ms
    awk -v what="$what" -v goal="$goal" -v ns=$(($(date +%s%N) - started)) -v ms=$((ms - before)) \
        'BEGIN { printf "     %s: %.1f s, of which %.1f s of processor time; the goal is %d s\n", what, ns / 1e9, ms / 1e3, goal }'
    return $status
}

ANSWER="The answer is 75." # the demo model's, to any bit, on every machine
ask() { echo "$1 generate $2 'What is 27 plus 48?' --temperature 0"; }
# A server on a free port: what /health answers, and that SIGTERM ends it with 0.
serve() {
    echo "rm -f /tmp/log; $1 serve $2 --port 0 >/tmp/log 2>&1 & for i in \$(seq 600); do port=\$(sed -nE 's/.*http:..127.0.0.1:([0-9]+).*/\\1/p' /tmp/log 2>/dev/null | head -1); [ -z \"\$port\" ] || break; sleep 0.1; done
        exec 3<>/dev/tcp/127.0.0.1/\$port && printf 'GET /health HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && head -1 <&3
        kill \$! && wait \$! && echo ended with 0"
}

try_tar() { # before the distribution's own libraries are there; a folder with a space, and one that was renamed
    apt zstd || return 1
    first() { inside "mkdir -p '/opt/a b' && tar -C '/opt/a b' --strip-components 1 --zstd -xf /packages/quire-*.tar.zst" && says "$ANSWER" "$(ask "'/opt/a b/bin/quire'" "'/opt/a b/share/quire/demo'")"; }
    want "$1, tar: the demo model answers" seconds_of "unpacked and answered" 20 first
    inside "mv '/opt/a b' /opt/q && ln -s /opt/q/bin/quire /usr/local/bin/quire"
    want "$1, tar: moved, by a link" says "$ANSWER" "$(ask quire /opt/q/share/quire/demo)"
    want "$1, tar: it serves" says "ended with 0" "$(serve quire /opt/q/share/quire/demo)"
    want "$1, tar: libraries are its own" says "none elsewhere" \
        "ldd /opt/q/bin/quire | grep -vE '/opt/q/|linux-vdso|ld-linux|lib(c|m|dl|pthread|rt|resolv|gcc_s|stdc\+\+)\.so' || echo none elsewhere"
    inside "rm -r /opt/q /usr/local/bin/quire"
}

try_wheel() {
    apt python3-venv || return 1
    first() { inside "python3 -m venv /v && /v/bin/pip install -q --disable-pip-version-check --no-index /packages/quire_llm-*.whl" >&2 && says "$ANSWER" "$(ask /v/bin/quire '"$(/v/bin/python -c "import quire; print(quire.DEMO_MODEL)")"')"; }
    want "$1, wheel: the demo model answers" seconds_of "environment made, installed and answered" 20 first
    want "$1, wheel: python -m quire" says "quire $version" "/v/bin/python -m quire version"
    want "$1, wheel: a status is passed on" says "ended with 2" "/v/bin/quire serve --no-such-option 2>/dev/null; echo ended with \$?"
    want "$1, wheel: signals reach the server" says "ended with 0" "$(serve /v/bin/quire '"$(/v/bin/python -c "import quire; print(quire.DEMO_MODEL)")"')"
    want "$1, wheel: it goes without a trace" says "left: 0" "/v/bin/pip uninstall -q -y quire-llm; echo left: \$(find /v -iname '*quire*' ! -iname '*require*' | wc -l)"
    inside "rm -r /v"
}

try_deb() {
    first() { apt "/packages/quire_*.deb /packages/quire-demo_*.deb" && says "$ANSWER" "$(ask quire /usr/share/quire/demo)"; }
    want "$1, deb: the demo model answers" seconds_of "installed with what it needs and answered" 20 first
    want "$1, deb: it names the commit" says "$commit" "quire version"
    want "$1, deb: it serves" says "ended with 0" "$(serve quire /usr/share/quire/demo)"
    want "$1, deb: completion for bash" says "generate" "source /usr/share/bash-completion/completions/quire; COMP_WORDS=(quire gen); COMP_CWORD=1; _quire; echo \${COMPREPLY[*]}"
    if [ "$1" = debian ] && apt zsh fish; then
        want "$1, deb: completion for zsh" says "well" "zsh -n /usr/share/zsh/vendor-completions/_quire && echo well"
        want "$1, deb: completion for fish" says "--max-model-len" "fish -c 'complete -C \"quire serve --max-m\"'"
    fi
    if command -v systemd-analyze >/dev/null; then
        want "$1, deb: the unit" check_unit
    else
        echo "     the unit was not checked: there is no systemd-analyze"
    fi
    inside "mkdir -p /var/lib/quire; echo QUIRE_MODEL=x >/etc/quire/x.env; apt-get purge -y -qq quire quire-demo" >"$root.log" 2>&1
    want "$1, deb: only state is left" test "$(inside "find / -xdev \( -path /proc -o -path /packages -o -path /tmp -o -path /var/log \) -prune -o -iname '*quire*' ! -iname '*require*' -print")" = /var/lib/quire
}

check_unit() { # by this machine's systemd, which has no /usr/bin/quire
    local printed
    printed=$(SYSTEMD_UNIT_PATH="$root/usr/lib/systemd/system:" systemd-analyze verify --man=no quire@x.service 2>&1 | grep quire | grep -v 'quire is not executable')
    [ -z "$printed" ] || { printf '%s\n' "$printed" | tail -3 >&2; return 1; }
}

for tree in $trees; do # one after the other: both at once are no faster
    [ -f "build/trees/$tree.tar" ] || quire_say "making a bare tree of $tree"
    [ -f "build/trees/$tree.tar" ] || make_tree "$tree" || cannot "no bare tree of $tree could be made: is there a network?"
done
bash tools/package.sh ${build:+--build "$build"} || exit 1
version=$(sed -nE 's/^project\(quire VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
commit=$("${build:-build-package}/quire" version | sed -nE 's/^commit +([0-9a-z]+).*/\1/p')
for tree in $trees; do
    root=$work/$tree
    mkdir "$root"
    tar -C "$root" -xf "build/trees/$tree.tar" || exit 1
    mkdir "$root/packages"
    cp build/packages/* "$root/packages/"
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    inside "apt-get update -qq" >"$root.log" 2>&1 || cannot "apt-get update in the tree of $tree: is there a network?"
    try_tar "$tree" || cannot "apt-get in the tree of $tree: is there a network?"
    try_wheel "$tree" || bad=1
    try_deb "$tree"
    rm -rf "$root"
done
exit $bad
