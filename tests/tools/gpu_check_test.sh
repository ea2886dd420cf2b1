#!/usr/bin/env bash
# tools/gpu_bundle.sh and tools/gpu_check.sh without a GPU: a bundle of the emulator's build, unpacked into a copy of the source
# tree, both calls there without a network and with nothing in the environment. Then the same with a fault planted each time: an
# illegal address, a hang, a wrong result, a kernel that does not load, steps that run out of time. Every other row must still be
# reported, and the report must name the culprit.
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
check() { # tree, arguments; $seconds: of a call, $plant: QUIRE_SIMT_FAIL, $hangs: seconds after which a case hangs
    local tree=$1
    shift
    "${alone[@]}" env -i PATH=/usr/local/bin:/usr/bin:/bin QUIRE_GPU_CHECK_KEEP="$tree/keep" \
        ${hangs:+QUIRE_ISOLATE_LIMIT_S=$hangs} ${seconds:+QUIRE_GPU_CHECK_SECONDS=$seconds} ${plant:+QUIRE_SIMT_FAIL=$plant} bash "$tree/tools/gpu_check.sh" "$@" --emulator
}
copy() { cp -al "$work/good" "$work/$1"; }

want "an option is no name for a bundle" grep -q "^quire: usage:" <<<"$(timeout 10 bash "$root/tools/gpu_bundle.sh" --help 2>&1)"
want "help is no misuse" grep -q "^ended with 0" <<<"$(bash "$root/tools/gpu_check.sh" --help 2>/dev/null && echo "ended with 0")"
mkdir "$work/open"
closed=/proc/self/fd # not even root can create files there
want "an OUT_DIR that is not writable is a misuse, before anything runs" test "$(bash "$root/tools/gpu_check.sh" $closed --build "$work/open" 2>&1; echo $?)" = \
    "gpu_check: $(cd $closed && pwd) is not writable: name another OUT_DIR
2"
bash "$root/tools/gpu_bundle.sh" "$work/bundle.tar" --emulator "$build" || exit 1
mkdir "$work/good"
(cd "$root" && git ls-files -z tools tests/goldens/models tests/engine LICENSE | tar --null -T - -cf -) | tar -C "$work/good" -xf - || exit 1
tar -C "$work/good" -xf "$work/bundle.tar"
for name in slow wrong illegal hang bit load; do copy $name; done
rm "$work/slow/gpu-bundle/bin/kernels_test" "$work/wrong/gpu-bundle/bin/kernels_test"

# Two programs that never end: one has printed a row of figures, one has printed a failure.
printf '#!/bin/bash\necho "{\\"case\\":\\"gemm\\"}"\nexec sleep 100\n' >"$work/slow/gpu-bundle/bin/kernels_test"
printf '#!/bin/bash\necho "FAILED: an input was overwritten"\nexec sleep 100\n' >"$work/wrong/gpu-bundle/bin/kernels_test"
chmod +x "$work/slow/gpu-bundle/bin/kernels_test" "$work/wrong/gpu-bundle/bin/kernels_test"
(seconds=20; check "$work/slow" conformance "$work/slow/out" 2>/dev/null; echo $? >"$work/slow/status") &
(seconds=20; check "$work/wrong" conformance "$work/wrong/out" 2>/dev/null; echo $? >"$work/wrong/status") &

want "conformance from a bundle" check "$work/good" conformance "$work/good/out"
want "figures from a bundle" check "$work/good" figures "$work/good/out2"
want "two files come back" test "$(ls "$work/good/out2" | tr '\n' ' ')" = "report.md results.tar.gz "
for step in "kernels against the specification" "answers, lane form, GPU and CPU" "kernels: --quick --op sample" "latency: tiny" "exec to ready: tiny"; do
    want "both calls are in one report, though in two folders: $step" grep -qE "^\| $step[^|]*\| ok \|" "$work/good/out2/report.md"
done
want "figures that are not there say why" grep -q "| all-reduce | not measured: needs several GPUs |" "$work/good/out2/report.md"
want "rows of kernels" grep -qE "^\| sample T2 N100 top_p \| [0-9.]+ \|" "$work/good/out2/report.md"
tar -C "$work/good" -xzf "$work/good/out2/results.tar.gz"
want "what steps printed comes back" test -s "$work/good/results/ready_tiny.json" -a -s "$work/good/results/kernels.txt"
wait
want "out of time is no failure" test "$(cat "$work/slow/status")" = 0
want "and keeps what was measured" grep -qE "kernels against the specification \| not measured \| [0-9]+ \| ran out of time after [0-9]+ s, with 1 rows measured" "$work/slow/out/report.md"
want "what comes after it is named" grep -q "a step's operations | not measured |  | the 20 seconds of this call are over" "$work/slow/out/report.md"
want "a wrong answer is one, in time or not" grep -q "kernels against the specification | FAILED .* FAILED: an input was overwritten, and then ran out of time" "$work/wrong/out/report.md"
want "and is the status" test "$(cat "$work/wrong/status")" = 1

# ---- planted faults ----

kernels_of() { tar -xzOf "$work/$1/out/results.tar.gz" results/kernels.txt; }
rows_of() { # name, how many rows are ok
    want "$1: the rows of other kernels are reported" test "$(kernels_of "$1" | grep -c '^ok ')" = "$2"
    want "$1: later steps ran" grep -q "^| a step's operations | ok |" "$work/$1/out/report.md"
}
(plant=kernel/rmsnorm_kernel:1:700; check "$work/illegal" conformance "$work/illegal/out" 2>/dev/null; echo $? >"$work/illegal/status") &
(hangs=15; plant=kernel/rmsnorm_kernel:1:-1; check "$work/hang" conformance "$work/hang/out" 2>/dev/null; echo $? >"$work/hang/status") &
(plant=kernel/rmsnorm_kernel:1:-2; check "$work/bit" conformance "$work/bit/out" 2>/dev/null; echo $? >"$work/bit/status") &
(plant=cudaFuncGetAttributes:5:209; check "$work/load" conformance "$work/load/out" 2>/dev/null; echo $? >"$work/load/status") &
wait
n=$(kernels_of good | grep -c '^ok ')
for name in illegal hang bit load; do want "$name: the status is 1" test "$(cat "$work/$name/status")" = 1; done
rows_of illegal $((n - 2))
rows_of hang $((n - 2))
rows_of bit $((n - 1))
rows_of load "$n"
want "illegal: the report names the case" grep -q "kernels against the specification | FAILED .*rmsnorm T1 K16" "$work/illegal/out/report.md"
want "illegal: it ran again by itself" grep -q "again with CUDA_LAUNCH_BLOCKING=1" <<<"$(kernels_of illegal)"
want "hang: the report names the case" grep -q "kernels against the specification | FAILED .*rmsnorm T1 K16.*it hung" "$work/hang/out/report.md"
want "bit: the report names the case" grep -q "kernels against the specification | FAILED .*rmsnorm T1 K16" "$work/bit/out/report.md"
want "load: the report names the kernel" grep -qE "^\| a GPU \| FAILED .*NOT LOADED: [a-z_0-9<]+" "$work/load/out/report.md"
exit $bad
