#!/usr/bin/env bash
# tools/gpu_bundle.sh and tools/gpu_check.sh without a GPU: a bundle of the emulator's build, unpacked elsewhere, both calls there
# without a network and with nothing in the environment, and what becomes of steps that run out of time.
#
#   gpu_check_test.sh BUILD
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
want() { # what, command...
    local what=$1
    shift
    "$@" && echo "ok   $what" || { echo "FAILED: $what"; bad=1; }
}
alone=()
if unshare -rn true 2>/dev/null; then alone=(unshare -rn); else echo "(this machine lets nobody leave the network: the check runs with it)"; fi
check() { # folder of the bundle, arguments
    local folder=$1
    shift
    "${alone[@]}" env -i PATH=/usr/local/bin:/usr/bin:/bin ${seconds:+QUIRE_GPU_CHECK_SECONDS=$seconds} bash "$folder/quire-gpu/tools/gpu_check.sh" "$@" --emulator
}

want "an option is no name for a bundle" grep -q "^quire: usage:" <<<"$(timeout 10 bash "$root/tools/gpu_bundle.sh" --help 2>&1)"
want "help is no misuse" grep -q "^ended with 0" <<<"$(bash "$root/tools/gpu_check.sh" --help 2>/dev/null && echo "ended with 0")"
bash "$root/tools/gpu_bundle.sh" "$work/bundle.tar" --emulator "$build" || exit 1
mkdir "$work/good"
tar -C "$work/good" -xf "$work/bundle.tar"
cp -al "$work/good" "$work/slow"
cp -al "$work/good" "$work/wrong"
rm "$work/slow/quire-gpu/bin/kernels_test" "$work/wrong/quire-gpu/bin/kernels_test"

# Two that never end: one has measured a row, one has said that something is wrong.
printf '#!/bin/bash\necho "{\\"case\\":\\"gemm\\"}"\nexec sleep 100\n' >"$work/slow/quire-gpu/bin/kernels_test"
printf '#!/bin/bash\necho "FAILED: an input was overwritten"\nexec sleep 100\n' >"$work/wrong/quire-gpu/bin/kernels_test"
chmod +x "$work/slow/quire-gpu/bin/kernels_test" "$work/wrong/quire-gpu/bin/kernels_test"
(seconds=8; check "$work/slow" conformance "$work/slow/out" 2>/dev/null; echo $? >"$work/slow/status") &
(seconds=8; check "$work/wrong" conformance "$work/wrong/out" 2>/dev/null; echo $? >"$work/wrong/status") &

want "conformance from a bundle" check "$work/good" conformance "$work/good/out"
want "figures from a bundle" check "$work/good" figures "$work/good/out"
want "two files come back" test "$(ls "$work/good/out" | tr '\n' ' ')" = "report.md results.tar.gz "
for step in "kernels against the page" "answers, lane form, GPU and CPU" "kernels: --quick --op sample" "latency: tiny" "exec to ready: tiny"; do
    want "both calls are in one report: $step" grep -qE "^\| $step[^|]*\| ok \|" "$work/good/out/report.md"
done
want "figures that are not there say why" grep -q "| all-reduce | not measured: needs several GPUs |" "$work/good/out/report.md"
want "rows of kernels" grep -qE "^\| sample T2 N100 top_p \| [0-9.]+ \|" "$work/good/out/report.md"
tar -C "$work/good" -xzf "$work/good/out/results.tar.gz"
want "what steps printed comes back" test -s "$work/good/results/ready_tiny.json" -a -s "$work/good/results/kernels.txt"
wait
want "out of time is no failure" test "$(cat "$work/slow/status")" = 0
want "and keeps what was measured" grep -qE "kernels against the page \| not measured \| [0-9]+ \| ran out of time after [0-9]+ s, with 1 rows measured" "$work/slow/out/report.md"
want "what comes after it is named" grep -q "a step's operations | not measured |  | the 8 seconds of this call are over" "$work/slow/out/report.md"
want "a wrong answer is one, in time or not" grep -q "kernels against the page | FAILED .* FAILED: an input was overwritten, and then ran out of time" "$work/wrong/out/report.md"
want "and is the status" test "$(cat "$work/wrong/status")" = 1
exit $bad
