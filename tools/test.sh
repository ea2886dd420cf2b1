#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. Continuous integration runs this, and so can you.
#
#   bash tools/test.sh                    every part but wide; long matrices by a sample. On 2 cores, build included, 16 minutes are the goal
#   bash tools/test.sh wide               what takes longer: processes killed a hundred times, whole tools on the emulator
#   bash tools/test.sh --all              every part, every case: before a release, or where you changed what samples cover
#   bash tools/test.sh quick              a minute after a build: modules, the release's short tests, a few clients
#   bash tools/test.sh release asan       parts: modules, release, simt, clients, asan, tsan, fuzz (together: suite), cuda, wide
#
# Parts: modules (who includes whom, the layout of sources, and their text), release (unit, golden and invariance tests), simt (the kernels for GPUs and the engine
# above them, on an emulator that looks for races and bad addresses: no GPU is needed), clients (the real openai-python, raw
# sockets and, for the page at /ui, Chromium against build/quire), asan (the same tests as release under AddressSanitizer and UBSan, but for
# the cpu backend's kernels), tsan (what has threads, under ThreadSanitizer), fuzz (each fuzz target for QUIRE_FUZZ_SECONDS, default
# 1, in wide 3, with one seed; with --all 60, with new seeds), cuda (the library
# for GPUs by NVIDIA's compiler, which is installed if need be: no kernel may spill), wide (cuda, and the tests labelled so of all builds, which the other parts leave out; the kernels under
# both sanitizers; the bundle for a machine with a GPU; no kernel for GPUs may grow by 3 %; packages), packages (deb, tar
# and wheel of the release build, installed and used in bare trees of Debian 12 and Ubuntu 24.04; needs root and a network).
#
# The sample of a long matrix is drawn by a seed from the commit, so that each commit runs another and all run in time;
# tests/sample.h says how. The seed is printed; QUIRE_TEST_SAMPLE=SEED runs that sample again, also under ctest, which
# without it runs everything, but for sanitizers' invariance tests, which would take hours. A program that samples says how many of
# how many cases it ran.
#
# Ends with where the time went and one line "N passed, N failed", and how many could not run on this machine.
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/setup.sh

all="modules release simt clients asan tsan fuzz"
extra="cuda packages wide suite"
whole=""
parts=""
for part in "$@"; do
    case " $all $extra quick --all --help " in
        *" $part "*) ;;
        *) quire_die "there is no part '$part'; there are: $all $extra quick, and --all for every case of each" ;;
    esac
    if [ "$part" = --help ]; then sed -nE '2,/^set /s/^# ?//p' tools/test.sh; exit; fi
    case $part in
        --all) whole=1 ;;
        suite) parts="$parts $all" ;;
        *) parts="$parts $part" ;;
    esac
done
parts=${parts:-$all${whole:+ cuda wide}}

if [ -n "$whole" ]; then
    export QUIRE_TEST_SAMPLE=""
elif [ -z "${QUIRE_TEST_SAMPLE:-}" ]; then # 7 hexadecimal digits are a number that every program can read
    commit=$(git rev-parse HEAD 2>/dev/null) || commit=1
    export QUIRE_TEST_SAMPLE=$((16#${commit:0:7}))
fi

passed=0
failed=0
failures=""
not_run=""
n_not_run=0
times="" # lines "seconds what"
slow=""  # lines "seconds part: test"
tally() { # what passed failed
    passed=$((passed + $2))
    failed=$((failed + $3))
    [ "$3" = 0 ] || failures="$failures $1"
    quire_say "$1: $2 passed, $3 failed"
}

timed() { # what command...: how long it took goes into the table at the end
    local what=$1 started=$SECONDS status
    shift
    "$@"
    status=$?
    times="$times$((SECONDS - started)) ${in_wide:+wide: }$what"$'\n'
    return $status
}

take_slow() { # part report: JUnit's times of its tests
    slow="$slow$(grep -o '<testcase [^>]*' "$2" | sed -nE "s/.* name=\"([^\"]+)\".* time=\"([0-9]+)[^\"]*\".*/\2 $1: \1/p" |
        sort -rn | head -5)"$'\n'
}

# More at a time than there are cores: of the time of those that talk to servers, three quarters are waiting for a socket or
# a clock.
at_once=$((2 * $(nproc) + 1))
run_ctest() { # preset [arguments of ctest]
    local report=build/ctest-$1.xml without=wide
    rm -f "$report"
    [ "$1" != tsan ] || without="wide|no_races" # a test without threads; -LE on the command line replaces the preset's
    [ $# -gt 1 ] || set -- "$1" -LE "$without"
    timed "$1, tests" ctest --preset "$1" -j$at_once --no-tests=error --output-junit "$PWD/$report" "${@:2}"
    local total bad absent
    total=$(sed -nE 's/.*<testsuite .*|.*tests="([0-9]+)".*/\1/p' "$report" | grep -m1 .)
    bad=$(sed -nE 's/.*failures="([0-9]+)".*/\1/p' "$report" | grep -m1 .)
    if [ -z "$total" ] || [ -z "$bad" ]; then tally "ctest $1 (gave no report)" 0 1; return; fi
    take_slow "$1" "$report"
    # Tests of instructions, or of a GPU, that this machine lacks: neither passed nor failed, and said so.
    absent=$(sed -nE 's/.*<testcase name="([^"]+)".* status="(notrun|disabled)".*/\1/p' "$report")
    n_not_run=$((n_not_run + $(echo "$absent" | grep -c .)))
    [ -z "$absent" ] || not_run="$not_run $1:$(echo "$absent" | tr '\n' ' ' | sed 's/ $//; s/ /,/g')"
    tally "ctest $1" $((total - bad - $(echo "$absent" | grep -c .))) "$bad"
}

run_modules() {
    if timed modules bash tools/check_modules.sh; then tally modules 1 0; else tally modules 0 1; fi
    if timed format bash tools/format.sh --check; then tally format 1 0; else tally format 0 1; fi
    if timed text bash tools/docs/check.sh; then tally text 1 0; else tally text 0 1; fi
}

run_release() { run_ctest release; }

run_simt() { # x86-64 only
    [ "$(uname -m)" = x86_64 ] || { not_run="$not_run simt"; return; }
    timed "simt, build" quire_build simt ON suite && run_ctest simt
}

# What goes to a machine with a GPU, by the release build's programs, is small enough to be sent.
check_bundle() {
    cmake --build --preset release --target gpu_limits gpu_fragments gpu_probe gpu_nccl >build/gpu-bundle.log 2>&1 ||
        { tail -20 build/gpu-bundle.log >&2; return 1; }
    bash tools/gpu_bundle.sh build/gpu-bundle.tar.xz --build build
}

# What people install, of the release build, in bare trees of two distributions.
run_packages() {
    timed packages bash tools/package_test.sh --build build >build/packages.log 2>&1
    case $? in
        0) tally packages "$(grep -c '^ok ' build/packages.log)" 0 ;;
        77) not_run="$not_run packages"; tail -1 build/packages.log >&2 ;;
        *) grep -vE '^(ok|  ) ' build/packages.log | tail -20 >&2; tally packages "$(grep -c '^ok ' build/packages.log)" "$(grep -c '^FAILED' build/packages.log | sed 's/^0$/1/')" ;;
    esac
}

# NVIDIA's compiler took 370 of the release build's 1,000 processor seconds, and no other part needs the library. Without a
# GPU it has machine code for sm_90a alone, whose instructions are counted: one of ptxas' two runs of each kernel, and no PTX, which
# the bundle has no room for. --all has all.
run_cuda() {
    local options=""
    if grep -qsE '^QUIRE_CUDA:[A-Z]+=off$' build/CMakeCache.txt; then
        options=-DQUIRE_CUDA=auto
        [ -n "$whole" ] || command -v nvidia-smi >/dev/null || options="$options -DQUIRE_CUDA_ARCHITECTURES=90a-real"
    elif [ -n "$whole" ] && grep -qsE '^QUIRE_CUDA_ARCHITECTURES:[A-Z]+=90a-real$' build/CMakeCache.txt; then
        options=-DQUIRE_CUDA_ARCHITECTURES=
    fi
    QUIRE_CMAKE_OPTIONS=$options timed "cuda, build" quire_build release ON
    bash tools/check_ptxas.sh build && [ -f build/libquire_cuda.so ] && tally cuda 1 0 || tally cuda 0 1
}

count_instructions() { # of each kernel: none may grow by 3 %
    timed "cuda, counts" python3 -B tools/sass_report.py counts build/libquire_cuda.so
    case $? in
        0) tally "cuda counts" 1 0 ;;
        3) not_run="$not_run cuda:counts" ;; # no disassembler, or another toolkit's code
        *) tally "cuda counts" 0 1 ;;
    esac
}

make_venv() {
    if [ ! -x build/venv/bin/pytest ] || ! cmp -s tests/clients/requirements.txt build/venv/requirements.txt; then
        quire_say "installing the Python clients that tests/clients/requirements.txt pins into build/venv"
        rm -rf build/venv
        python3 -m venv build/venv && build/venv/bin/pip install -q --no-compile --disable-pip-version-check -r tests/clients/requirements.txt ||
            return
        cp tests/clients/requirements.txt build/venv/requirements.txt
    fi
}

run_clients() { # [files]
    if [ -n "$venv" ]; then # make_venv, which began with the release build
        timed "clients, install" wait "$venv" || { tally "clients (the Python clients could not be installed)" 0 1; return; }
        venv=""
    fi
    [ $# != 0 ] || set -- tests/clients -m "not wide"
    # Files side by side, for each has servers of its own and mostly waits.
    timed "clients, tests" build/venv/bin/pytest -q -p no:cacheprovider -n $at_once --dist loadfile --junitxml=build/pytest.xml "$@"
    local total bad
    total=$(sed -nE 's/.* tests="([0-9]+)".*/\1/p' build/pytest.xml | head -1)
    bad=$(sed -nE 's/.*<testsuite [^>]*errors="([0-9]+)" failures="([0-9]+)" skipped="([0-9]+)".*/\1 + \2 + \3/p' build/pytest.xml | head -1)
    if [ -z "$total" ] || [ -z "$bad" ]; then tally "clients (gave no report)" 0 1; return; fi
    take_slow clients build/pytest.xml
    # Tests say what they lack (conftest.py: cannot_run); any other skip is a failure.
    local absent
    absent=$(grep -o '<testcase [^>]*><skipped [^>]*message="could not run here' build/pytest.xml | sed -nE 's/.* name="([^"]+)".*/\1/p')
    [ -z "$absent" ] || not_run="$not_run clients:$(echo "$absent" | tr '\n' ' ' | sed 's/ $//; s/ /,/g')"
    local n_absent
    n_absent=$(echo "$absent" | grep -c .)
    n_not_run=$((n_not_run + n_absent))
    tally clients $((total - (bad))) $((bad - n_absent))
}

run_asan() { # leaks count as failures; a start-up allocation of the C library is none of ours
    timed "asan, build" quire_build asan ON suite && run_ctest asan
}

run_tsan() { timed "tsan, build" quire_build tsan ON suite && run_ctest tsan; }

fuzz_one() { # program seconds seed: what it says is in its log
    local name=${1##*/}
    [ "$3" = 0 ] || rm -rf "build-fuzz/corpus/$name" # what an earlier search found would change what this seed tries
    mkdir -p "build-fuzz/corpus/$name"
    "$1" -max_total_time="$2" -seed="$3" -rss_limit_mb=2048 -timeout=10 -max_len=65536 -print_final_stats=0 -verbosity=0 \
        -artifact_prefix="build-fuzz/$name-" "build-fuzz/corpus/$name" "tests/fuzz/corpus/${name#fuzz_}" >"build-fuzz/$name.log" 2>&1 ||
        echo "$name"
}
export -f fuzz_one

# The same inputs each time, so that a failure is due to the change under test. --all and QUIRE_FUZZ_SECONDS search with
# another seed each time (0), and keep what they find.
run_fuzz() { # [seconds of each target]
    local seconds=${QUIRE_FUZZ_SECONDS:-$([ -n "$whole" ] && echo 60 || echo "${1:-1}")} seed=1 targets bad name
    [ -z "$whole${QUIRE_FUZZ_SECONDS:-}" ] || seed=0
    timed "fuzz, build" quire_build fuzz ON fuzzers
    targets=$(find build-fuzz/tests/fuzz -maxdepth 1 -name 'fuzz_*' -type f -executable | sort)
    if [ -z "$targets" ]; then tally "fuzz (there are no targets)" 0 1; return; fi
    fuzz_all() { echo "$targets" | xargs -P "$(nproc)" -I{} bash -c "fuzz_one {} $seconds $seed"; }
    timed "fuzz, tests" fuzz_all >build-fuzz/failed
    bad=$(cat build-fuzz/failed)
    for name in $bad; do tail -30 "build-fuzz/$name.log" >&2; done
    tally "fuzz, $seconds s each${bad:+: $(echo $bad)}" $(($(echo "$targets" | grep -c .) - $(echo "$bad" | grep -c .))) "$(echo "$bad" | grep -c .)"
}

# The tests that the other parts leave out, of every build; client tests are marked.
in_wide=""
run_wide() {
    in_wide=1
    case " $parts " in *" cuda "*) ;; *) run_cuda ;; esac
    run_ctest release -L wide
    if [ "$(uname -m)" = x86_64 ]; then timed "simt, build" quire_build simt ON && run_ctest simt -L wide; fi
    if [ "$(uname -m)" = x86_64 ]; then
        timed "clients, the emulator's server" quire_build simt ON emulated_ranks
        run_clients tests/clients -m wide
    else
        run_clients tests/clients -m wide --ignore tests/clients/ranks/test_gpu_hosts.py
        not_run="$not_run clients:test_gpu_hosts"
    fi
    if [ -f build/libquire_cuda.so ]; then
        count_instructions
        timed "cuda, bundle" check_bundle && tally "cuda bundle" 1 0 || tally "cuda bundle" 0 1
    else
        not_run="$not_run cuda:counts,bundle"
    fi
    run_packages
    timed "asan, build" quire_build asan ON && run_ctest asan -L wide
    timed "tsan, build" quire_build tsan ON && run_ctest tsan -L wide -LE no_races
    local preset
    for preset in asan_kernels tsan_kernels; do
        timed "$preset, build" quire_build $preset ON checks_kernels && run_ctest $preset -L checks_kernels -LE no_races
    done
    [ -n "$whole" ] || run_fuzz 3 # with --all, fuzz has had its minute of each
    in_wide=""
}

# What a change breaks first: everything that is quick in the release build, and a server that answers as it should.
run_quick() {
    run_modules
    run_ctest release -LE 'long|wide'
    run_clients tests/clients/test_demo_goldens.py tests/clients/test_openai.py
}

needs="build test"
for part in $parts; do
    case $part in
        clients | fuzz | cuda) needs="$needs $part" ;;
        quick) needs="$needs clients" ;;
        packages) needs="$needs package trees" ;;
        wide) needs="$needs clients fuzz cuda package trees" ;;
    esac
done
timed "what was missing" quire_setup $needs

# Presets that compile a file in the same way share its object: simt and release, and one run and the next.
if command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
    export CCACHE_DIR=${CCACHE_DIR:-$PWD/build/ccache} CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
    export CCACHE_DEPEND=1 # headers by the compiler's own list: without it each file is preprocessed twice, a seventh of the whole
fi
# gold takes half of the time to link, and 500 programs are linked.
command -v ld.gold >/dev/null && export LDFLAGS="${LDFLAGS:-} -fuse-ld=gold"

# pip computes on one core, and the build uses what it leaves.
venv=""
case "$needs" in *clients*) make_venv & venv=$! ;; esac
quire_say "building build/quire"
# A new build on a machine without a GPU has no library for GPUs until the part cuda adds it.
fresh=""
[ -e build/CMakeCache.txt ] || command -v nvidia-smi >/dev/null || fresh=1
QUIRE_CMAKE_OPTIONS=${fresh:+-DQUIRE_CUDA=off} timed "release, build" quire_build release ON
[ -n "$whole" ] || quire_say "long matrices by the sample of QUIRE_TEST_SAMPLE=$QUIRE_TEST_SAMPLE"
for part in $parts; do "run_$part"; done

{
    echo "where the time went, in seconds:"
    printf '%s' "$times" | awk 'NF { printf "%6d  %s\n", $1, substr($0, length($1) + 2); sum += $1; if (/ wide: /) wide += $1 }
        END { printf "%6d  in all", sum; if (wide) printf ", %d without wide", sum - wide; print "" }'
    echo "the slowest tests:"
    printf '%s' "$slow" | grep . | sort -rn | head -12 | awk '{ printf "%6d  %s\n", $1, substr($0, length($1) + 2) }'
} >&2
[ -z "$failures" ] || quire_say "failed:$failures"
[ -z "$not_run" ] || quire_say "could not run here:$not_run"
echo "$passed passed, $failed failed$([ $n_not_run = 0 ] || echo ", $n_not_run could not run here")"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
