#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. Continuous integration runs this, and so can you.
#
#   bash tools/test.sh                    everything, about 45 minutes on 2 cores
#   bash tools/test.sh release            one part: rooms, release, simt, cuda, clients, asan, tsan, fuzz
#
# Parts: rooms (who includes whom), release (unit, golden and invariance tests), simt (the kernels for GPUs and the engine
# above them, on an emulator that looks for races and bad addresses: no GPU is needed), cuda (the library for GPUs by
# NVIDIA's compiler, which is installed if need be: no kernel may spill), clients (the real openai-python, raw sockets
# and, for the page at /ui, Chromium against build/quire), asan (the same tests as release under AddressSanitizer and UBSan), tsan (C
# threads), fuzz (each fuzz target for QUIRE_FUZZ_SECONDS, default 20). Ends with one line "N passed, N failed".
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/setup.sh

all="rooms release simt cuda clients asan tsan fuzz"
parts=${*:-$all}
for part in $parts; do
    case " $all " in *" $part "*) ;; *) quire_die "there is no part '$part'; there are: $all" ;; esac
done

passed=0
failed=0
failures=""
not_run=""
tally() { # what passed failed
    passed=$((passed + $2))
    failed=$((failed + $3))
    [ "$3" = 0 ] || failures="$failures $1"
    quire_say "$1: $2 passed, $3 failed"
}

run_ctest() { # preset
    local report=build/ctest-$1.xml
    rm -f "$report"
    ctest --preset "$1" -j"$(nproc)" --no-tests=error --output-junit "$PWD/$report"
    local total bad absent
    total=$(sed -nE 's/.*<testsuite .*|.*tests="([0-9]+)".*/\1/p' "$report" | grep -m1 .)
    bad=$(sed -nE 's/.*failures="([0-9]+)".*/\1/p' "$report" | grep -m1 .)
    if [ -z "$total" ] || [ -z "$bad" ]; then tally "ctest $1 (gave no report)" 0 1; return; fi
    # Tests of instructions, or of a GPU, that this machine lacks: neither passed nor failed, and said so.
    absent=$(sed -nE 's/.*<testcase name="([^"]+)".* status="(notrun|disabled)".*/\1/p' "$report")
    [ -z "$absent" ] || not_run="$not_run $1:$(echo "$absent" | tr '\n' ' ' | sed 's/ $//; s/ /,/g')"
    tally "ctest $1" $((total - bad - $(echo "$absent" | grep -c .))) "$bad"
}

run_rooms() {
    if bash tools/check_rooms.sh; then tally rooms 1 0; else tally rooms 0 1; fi
}

run_release() { run_ctest release; }

run_simt() { # x86-64 only
    [ "$(uname -m)" = x86_64 ] || { not_run="$not_run simt"; return; }
    quire_build simt ON && run_ctest simt
}

run_cuda() { # the release build has the library since there is a toolkit
    bash tools/check_ptxas.sh build && [ -f build/libquire_cuda.so ] && tally cuda 1 0 || tally cuda 0 1
}

run_clients() {
    if [ ! -x build/venv/bin/pytest ] || ! cmp -s tests/clients/requirements.txt build/venv/requirements.txt; then
        quire_say "installing the Python clients that tests/clients/requirements.txt pins into build/venv"
        rm -rf build/venv
        python3 -m venv build/venv && build/venv/bin/pip install -q --disable-pip-version-check -r tests/clients/requirements.txt ||
            { tally "clients (the Python clients could not be installed)" 0 1; return; }
        cp tests/clients/requirements.txt build/venv/requirements.txt
    fi
    build/venv/bin/pytest -q -p no:cacheprovider --junitxml=build/pytest.xml tests/clients
    local total bad
    total=$(sed -nE 's/.* tests="([0-9]+)".*/\1/p' build/pytest.xml | head -1)
    bad=$(sed -nE 's/.*<testsuite [^>]*errors="([0-9]+)" failures="([0-9]+)" skipped="([0-9]+)".*/\1 + \2 + \3/p' build/pytest.xml | head -1)
    if [ -z "$total" ] || [ -z "$bad" ]; then tally "clients (gave no report)" 0 1; return; fi
    tally clients $((total - (bad))) $((bad))
}

run_asan() { # leaks count as failures; a start-up allocation of the C library is none of ours
    quire_build asan ON && run_ctest asan
}

run_tsan() { quire_build tsan ON && run_ctest tsan; }

run_fuzz() {
    local seconds=${QUIRE_FUZZ_SECONDS:-20} target name good=0 bad=0
    quire_build fuzz ON
    for target in build-fuzz/tests/fuzz/fuzz_*; do
        [ -x "$target" ] && [ -f "$target" ] || continue
        name=${target##*/}
        mkdir -p "build-fuzz/corpus/$name"
        if "$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -max_len=65536 -print_final_stats=0 -verbosity=0 \
            -artifact_prefix="build-fuzz/$name-" "build-fuzz/corpus/$name" "tests/fuzz/corpus/${name#fuzz_}" >"build-fuzz/$name.log" 2>&1; then
            good=$((good + 1))
        else
            tail -30 "build-fuzz/$name.log" >&2
            bad=$((bad + 1))
        fi
    done
    [ $((good + bad)) -gt 0 ] || bad=1
    tally "fuzz, $seconds s each" $good $bad
}

needs="build test"
for part in $parts; do
    case $part in clients | fuzz | cuda) needs="$needs $part" ;; esac
done
quire_setup $needs
quire_say "building build/quire"
started=$(date +%s)
quire_build release ON
quire_say "built in $(($(date +%s) - started)) s"
for part in $parts; do "run_$part"; done

[ -z "$failures" ] || quire_say "failed:$failures"
[ -z "$not_run" ] || quire_say "this machine could not run:$not_run"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
