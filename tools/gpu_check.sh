#!/usr/bin/env bash
# Two commands for a machine with a GPU: are its answers right, and how near to its limits is it? At most 8 minutes each.
#
#   bash tools/gpu_check.sh [conformance|figures] OUT_DIR    in the source tree, where a bundle of tools/gpu_bundle.sh was unpacked;
#                                                            without a bundle it builds one. Without a word: both, one after the other
#   bash tools/gpu_check.sh [conformance|figures] OUT_DIR --emulator [--build BUILD]
#                                                            with the preset simt, on tiny sizes: proves this script, and measures nothing
#
# Writes OUT_DIR/report.md, and OUT_DIR/results.tar.gz with what each step printed: JSON where it is figures. Both are written
# anew after each step. A copy of the results is kept in QUIRE_GPU_CHECK_KEEP (default /var/tmp/quire-gpu-check), so that a
# second call completes the report of the first, also where OUT_DIR is another.
# Every step has a time limit, and none stops the next: a case that crashes or hangs is named, run again by itself with
# CUDA_LAUNCH_BLOCKING=1 and under compute-sanitizer, and the next case runs in a new process. Exit status: 0 when everything
# that ran was right; 1 when something failed; 2 when there was no GPU. A step that was not measured says why: one that ran out
# of time has not failed. Needs bash, coreutils, sed, awk, tar and NVIDIA's driver; python3 makes models, torch is a peer.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
say() { printf 'gpu_check: %s\n' "$*" >&2; }
usage() { sed -n '2,17s/^# \{0,1\}//p' "$0"; }
misused() { usage >&2; exit 2; }

out="" build="" emulator=0 calls="conformance figures"
case ${1:-} in conformance | figures) calls=$1; shift ;; esac
while [ $# -gt 0 ]; do
    case $1 in
        --build) [ $# -gt 1 ] || misused; build=$2; shift ;;
        --emulator) emulator=1 ;;
        -h | --help) usage; exit ;;
        -*) misused ;;
        *) [ -z "$out" ] || misused; out=$1 ;;
    esac
    shift
done
[ -n "$out" ] || misused
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
# Before the minutes of a call are spent, not after them.
if ! { : >"$out/report.md.new"; } 2>/dev/null || ! rm "$out/report.md.new"; then
    printf 'gpu_check: %s is not writable: name another OUT_DIR\n' "$out" >&2
    exit 2
fi
[ -z "$build" ] || build=$(cd "$build" && pwd) || exit 2
cd "$root" || exit 2
work=$(mktemp -d)
background="" # processes that no step waits for
trap 'kill $background 2>/dev/null; rm -rf "$work" "$fast"' EXIT
fast=$work
results=$work/results
mkdir "$results"
keep=${QUIRE_GPU_CHECK_KEEP:-/var/tmp/quire-gpu-check}
bundle=gpu-bundle
earlier() { # an earlier call's results, of this bundle
    local place
    for place in "$out" "$keep"; do
        [ -s "$place/results.tar.gz" ] || continue
        [ "$place" = "$out" ] || cmp -s "$keep/MANIFEST" "$bundle/MANIFEST" || continue
        tar -C "$work" -xzf "$place/results.tar.gz" && [ -d "$results" ] && return
        say "$place/results.tar.gz is damaged and not used"
        rm -rf "$results" && mkdir "$results"
    done
}
earlier
# NVIDIA's tools are often not on the PATH of a bare shell.
for folder in /usr/local/cuda*/bin /opt/nvidia/*/bin /opt/nvidia/nsight-compute/*/; do
    [ ! -d "$folder" ] || PATH=$PATH:$folder
done

# ---- programs ----

if [ $emulator = 1 ]; then
    [ -n "$build" ] || [ -x $bundle/bin/quire ] || build=$root/build-simt
elif [ -z "$build" ] && [ ! -x $bundle/bin/quire ]; then
    bash tools/gpu_bundle.sh "$work/bundle.tar" && tar -xf "$work/bundle.tar" || exit 2
fi
program() { # prints where a program lies; nothing where it is not
    local place
    for place in $bundle/bin ${build:+"$build" "$build/tests/kernels" "$build/tests/engine" "$build/tests/simt"}; do
        [ -x "$place/$1" ] && echo "$place/$1" && return
    done
}
# In a build tree tests lie elsewhere than libquire_cuda.so; a bundle's programs find its libraries, an emulator's do not.
if [ -n "$build" ]; then libraries=$build; elif [ $emulator = 1 ]; then libraries=$root/$bundle/lib; else libraries=""; fi
[ -z "$libraries" ] || export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# A machine whose C library is older than the bundle's runs on the bundle's own.
loader=()
if [ -x $bundle/lib/libc/ld-linux-x86-64.so.2 ] && ! $bundle/bin/quire version >/dev/null 2>&1; then
    loader=($bundle/lib/libc/ld-linux-x86-64.so.2 --library-path "$root/$bundle/lib/libc:$root/$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
fi
quire=$(program quire)
[ -n "$quire" ] || { say "there is no quire${build:+ in $build}: build it first"; exit 2; }
quire=("${loader[@]}" "$quire")
small="" # set on the emulator: tiny sizes
[ $emulator = 0 ] || { small=1; export QUIRE_SIMT_MEMORY_MIB=2048; }
export CMOCKA_MESSAGE_OUTPUT=STDOUT
# Programs run their cases in processes of their own, and a kernel that does not load stops only its own cases.
export QUIRE_ISOLATE=1 QUIRE_CUDA_LOAD=lenient
[ $emulator = 1 ] || [ ${#loader[@]} != 0 ] || export QUIRE_COMPUTE_SANITIZER=$(command -v compute-sanitizer)

# ---- steps ----

call=""   # conformance or figures
failed=0
budget=${QUIRE_GPU_CHECK_SECONDS:-480} # of a call
begun=0
row() { # step, result, seconds, what it said
    printf '| %s | %s | %s | %s |\n' "$1" "$2" "$3" "${4//|//}" >>"$results/steps_$call.md"
    say "$1: $2${4:+ ($4)}"
    write_report
}
skip() { row "$1" "not measured" "" "$2"; }

# What says that an answer is wrong, of our tests and of compute-sanitizer: such a step has failed, in time or not.
wrong='^DIED|^FAIL |^FAILED|^\[  FAILED|FAILED:|^========= (Invalid|Uninitialized|Race|Error:|Potential|Barrier|Program hit)'

# step NAME LIMIT_S FILE COMMAND...: standard output goes to FILE, errors to FILE.err. A function limits its own commands, to
# $limit, and returns 124 where one ran out of it.
step() {
    local name=$1 limit=$2 file=$3 left=$((budget - SECONDS + begun)) from=$SECONDS status note n_rows
    shift 3
    [ $left -ge 5 ] || { skip "$name" "the $budget seconds of this call are over"; return 1; }
    [ -z "$small" ] || limit=$((limit * 4)) # the limits are a GPU's
    [ "$limit" -le $left ] || limit=$left
    if declare -F "$1" >/dev/null; then
        "$@" >"$results/$file" 2>"$results/$file.err"
    else
        timeout -k 5 "$limit" "$@" >"$results/$file" 2>"$results/$file.err"
    fi
    status=$?
    [ $status != 137 ] || [ $((SECONDS - from)) -lt "$limit" ] || status=124 # it did not end when it was asked to
    note=$(cat "$results/$file.err" "$results/$file" | grep -vE '^ *$|^\[=+\]' | tail -1 | cut -c1-140)
    [ -s "$results/$file.err" ] || rm -f "$results/$file.err"
    case $status in
        0) case $file in *.json) note="" ;; esac; row "$name" ok $((SECONDS - from)) "$note"; return 0 ;;
        77) skip "$name" "$note"; return 1 ;;
        124)
            if ! grep -qE "$wrong" "$results/$file"; then
                n_rows=$(grep -c '"case":' "$results/$file")
                row "$name" "not measured" $((SECONDS - from)) "ran out of time after $limit s$([ "$n_rows" = 0 ] || echo ", with $n_rows rows measured")"
                return 1
            fi
            note="$(grep -E "$wrong" "$results/$file" | head -1 | cut -c1-100), and then ran out of time" ;;
    esac
    failed=$((failed + 1))
    grep -qE "$wrong" <<<"$note" || note="$(grep -hE "$wrong" "$results/$file" | head -1 | cut -c1-140)${note:+ ($note)}"
    row "$name" FAILED $((SECONDS - from)) "status $status: $note"
    return 1
}
# run NAME LIMIT_S FILE PROGRAM ARGUMENTS...: a step of a program of ours, where it was built.
run() {
    local name=$1 limit=$2 file=$3 path
    path=$(program "$4")
    [ -n "$path" ] || { skip "$name" "$4 was not built"; return 1; }
    shift 4
    step "$name" "$limit" "$file" "${loader[@]}" "$path" "$@"
}
not_here() { # name: a step that the emulator has no use for
    [ $emulator = 1 ] && skip "$1" "an emulator"
}
field() { sed -nE "s/.*\"$2\":([0-9.eE+-]+).*/\1/p" "$results/$1" 2>/dev/null | head -1; }

describe_machine() {
    date -u
    "${quire[@]}" version
    [ ! -e $bundle/MANIFEST ] || head -4 $bundle/MANIFEST
    uname -srm
    lscpu 2>/dev/null | grep -E '^(Model name|CPU\(s\)|Thread)'
    ldd --version 2>/dev/null | head -1
    if command -v nvidia-smi >/dev/null; then
        timeout 20 nvidia-smi
        timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,clocks.sm,clocks.mem,power.limit,temperature.gpu --format=csv
        timeout 20 nvidia-smi -q -d CLOCK,PERFORMANCE | head -60
    else
        echo "nvidia-smi: not installed"
    fi
    python3 -c 'import sys; print("python", sys.version.split()[0])' 2>&1
}

limits=()
measure_limits() { # once for both calls
    not_here "limits of the GPU" && return
    [ -n "$(field limits.json read_gb_s)" ] || run "limits of the GPU" 60 limits.json gpu_limits || return
    limits=(--limit-gb-s "$(field limits.json read_gb_s)" --limit-tflop-s "$(field limits.json mma_f16_tflop_s)")
}

# ---- conformance ----

check_answers() { # greedy answers of GPU and CPU, the lane form: the same text
    local prompt device
    for prompt in "Tell me a story." "What is 27 plus 48?"; do
        for device in cpu cuda; do
            timeout "$limit" "${quire[@]}" generate tools/demo_model/model "$prompt" --device $device --gemm-form lane --temperature 0 --max-tokens "$1" \
                --max-model-len 256 --json >"$work/$device.json" || return
        done
        cat "$work/cuda.json"
        cmp "$work/cpu.json" "$work/cuda.json" || { echo "CPU: $(cat "$work/cpu.json")"; return 1; }
    done
    echo "two answers are the CPU's to the letter"
}

# The page is computed on CPUs, one thread a process: in several at once.
check_kernels() {
    local path parts=1 part status=0 all="" ended
    path=$(program kernels_test)
    [ -n "$path" ] || { echo "kernels_test was not built"; return 77; }
    [ -n "$exact" ] || echo "the mma form is held to tolerances: the probe did not find that the tensor cores add as the specification says"
    [ -n "$small" ] || parts=$((($(nproc) + 1) / 2))
    for part in $(seq $parts); do
        timeout -k 5 "$limit" "${loader[@]}" "$path" --backend cuda ${small:+--case " T1 K"} $exact --part "$part/$parts" >"$work/kernels.$part" 2>&1 &
        all="$all $!"
    done
    for part in $all; do
        wait "$part"
        ended=$?
        if [ $ended != 0 ] && { [ $status = 0 ] || [ $status = 124 ]; }; then status=$ended; fi # a wrong answer tells more than a lack of time
    done
    grep -hE '^DIED|^FAIL ' "$work"/kernels.* # what is wrong first
    cat "$work"/kernels.*
    return $status
}

# NCCL lies off the loader's path where pip or an image put it.
nccl_folder() {
    local folder
    for folder in $(ldconfig -p 2>/dev/null | sed -nE 's/.*libnccl\.so\.2 .* => (.*)\/[^/]*$/\1/p') \
        $(python3 -c 'import sys; print("\n".join(p + "/nvidia/nccl/lib" for p in sys.path if p))' 2>/dev/null) /usr/local/cuda*/lib64; do
        [ -e "$folder/libnccl.so.2" ] && echo "$folder" && return
    done
    return 1
}
check_nccl() {
    local path folder
    path=$(program gpu_nccl)
    [ -n "$path" ] || { echo "gpu_nccl was not built"; return 77; }
    folder=$(nccl_folder) || { echo "NCCL is not installed"; return 77; }
    [ ${#loader[@]} = 0 ] || { echo "this machine's C library is too old for the bundle's programs"; return 77; }
    LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" timeout -k 5 "$limit" "$path"
}

# --invariance off: cuBLASLt's answers are near the golden's, too.
check_off() {
    local path folder
    path=$(program engine_golden_cuda_test)
    [ -n "$path" ] || { echo "engine_golden_cuda_test was not built"; return 77; }
    folder=$(cublaslt_folder) || { echo "cuBLASLt is not installed"; return 77; }
    [ ${#loader[@]} = 0 ] || { echo "this machine's C library is too old for the bundle's programs"; return 77; }
    TEST_INVARIANCE=off LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" timeout -k 5 "$limit" "$path"
}

# A tool of NVIDIA's that needs more of the machine than a program does: where it may not look, nothing was measured.
tool() { # command...
    local status refused='not supported|Failed to initialize|LibraryNotLoaded|ERR_NVGPUCTRPERM|No kernels were profiled'
    timeout -k 5 "$limit" "$@" >"$work/tool" 2>&1
    status=$?
    grep -v '^==PROF==' "$work/tool"
    [ $status != 0 ] && grep -qE "$refused" "$work/tool" || return $status
    grep -E "$refused" "$work/tool" | head -1
    return 77
}

sanitize() { # tool
    local path case
    not_here "compute-sanitizer $1" && return
    command -v compute-sanitizer >/dev/null || { skip "compute-sanitizer $1" "not installed"; return; }
    [ ${#loader[@]} = 0 ] || { skip "compute-sanitizer $1" "this machine's C library is too old for the bundle's programs"; return; }
    path=$(program kernels_test)
    [ -n "$path" ] || { skip "compute-sanitizer $1" "kernels_test was not built"; return; }
    for case in "gemm bfloat16 mma T1 " "gemm bfloat16 mma T64" "attention float16 mma 6/2"; do
        step "compute-sanitizer $1, $case" 45 "sanitizer_$1_${case//[ \/]/_}.txt" tool compute-sanitizer --tool "$1" --error-exitcode 86 "$path" --backend cuda --case "$case"
    done
}

# One program that takes its test's name as a word, in a process for each of its tests.
engine() { # name, limit, arguments
    local name=$1 limit=$2
    shift 2
    not_here "engine: $name${1:+ $1}" || run "engine: $name${1:+ $1}" "$limit" "engine_$name${1:+_$1}.txt" "engine_${name}_cuda_test" "$@"
}

# What the instructions do, by programs of their own: the gates of the engine do not hide them.
exact="" # --exact, where the probe finds that the tensor cores add as the specification says
probe() {
    if ! not_here "what the instructions put where, and how they round"; then
        run "fragments of the instructions" 30 fragments.txt gpu_fragments
        run "rounding of the tensor cores" 60 probe.json gpu_probe
    fi
    ! grep -q '"mma_is_the_model":true' "$results/probe.json" 2>/dev/null || exact=--exact
}

conformance() {
    step "kernels against the specification" 150 kernels.txt check_kernels
    step "answers, lane form, GPU and CPU" 30 answers.txt check_answers $([ -n "$small" ] && echo 4 || echo 60)
    run "a step's operations" 60 step.txt kernels_step_test cuda
    engine golden 90
    engine bits 60
    if [ -n "$exact" ]; then
        engine bits 60 mma
        run "GEMM of every number of tokens, bit for bit" 60 gemm_mma.txt kernels_gemm_mma_test
    else
        not_here "engine: bits mma" || skip "engine: bits mma" "the tensor cores add otherwise than the specification, see the probe"
    fi
    engine invariance 90
    engine sampling 60
    engine requests 90
    engine draft_model 90
    engine vectors 60
    not_here "NCCL on one rank" || step "NCCL on one rank" 60 nccl.json check_nccl
    not_here "answers of --invariance off" || step "answers of --invariance off" 60 golden_off.txt check_off
    run "what ranks bring together" 90 group.txt kernels_group_test cuda
    if ! not_here "sampling"; then
        run "sampling" 60 sample.txt kernels_sample_test cuda
        run "sampling, edges" 60 sample_edges.txt kernels_sample_edges_test cuda
    fi
    sanitize memcheck
    sanitize racecheck
}

# ---- figures: kernels ----

kernels() { # limit, file name, arguments of bench kernels
    local limit=$1 file=kernels_$2.json
    shift 2
    run "kernels: $*" "$limit" "$file" quire bench kernels --device cuda --json "${limits[@]}" "$@"
}
bench_kernels() {
    if [ -n "$small" ]; then
        kernels 60 gemm --quick --op gemm --rows 64 --cols 48 --tokens 1,5 --dtype bfloat16
        kernels 60 attention --quick --op attention --heads 4/2 --head-dim 32 --seqs 2x1@70
        kernels 60 sample --quick --op sample --tokens 2 --rows 100 --sampling top_p
        kernels 60 experts --quick --op moe_gemm_gated --rows 32 --cols 48 --experts 4/2 --tokens 1,9 --dtype bfloat16
        return
    fi
    kernels 90 goals --case " mma "
    kernels 20 sample --case sample
    kernels 60 quantized --case " K4096"
    kernels 30 kv_8bit --case "heads of 128, blocks of 16, window 0, from 4095"
    # What the table leaves out: prefill, and the edges of the second kernel. o and down sum in segments, as they are served.
    kernels 20 gemm_qkv --op gemm --rows 6144 --cols 4096 --tokens 24,33,64,65,256,2048 --dtype bfloat16
    kernels 20 gemm_o --op gemm --rows 4096 --cols 4096 --unit 128 --tokens 24,32,33,48,65,128,256 --dtype bfloat16
    kernels 20 gemm_down --op gemm --rows 4096 --cols 14336 --unit 256 --tokens 24,32,33,48,65,128,256 --dtype bfloat16
    kernels 20 gemm_gate_up --op gemm --rows 28672 --cols 4096 --tokens 24,32,33,48,64,65,128,256,2048 --dtype bfloat16
    kernels 20 norm --case rmsnorm
    kernels 20 rope --case rope_kv
}
more_kernels() { # published shapes of others
    [ -z "$small" ] || return
    local length
    for length in 511 2047 8191; do
        kernels 25 "attention_64x$length" --op attention --heads 32/4 --head-dim 128 --seqs 64x1@$length
    done
    # Qwen3-30B-A3B's experts.
    kernels 30 experts_gate_up --op moe_gemm_gated --rows 1536 --cols 2048 --experts 128/8 --tokens 1,16,64,512,2048 --dtype bfloat16
    kernels 30 experts_down --op moe_gemm --rows 2048 --cols 768 --unit 64 --experts 128/8 --tokens 1,16,64,512,2048 --dtype bfloat16
    kernels 30 gemm_wide --op gemm --rows 73728 --cols 12288 --tokens 1,32 --dtype bfloat16
    kernels 20 sample_kinds --op sample --tokens 64 --rows 151936 --sampling greedy
}

# ---- figures: the engine ----

# A model of random weights, in memory where there is room: nothing is to wait for a disk. The one before it goes.
model=""
make_model() { # shape
    [ -z "$model" ] || rm -rf "$model"
    model=""
    command -v python3 >/dev/null || { skip "a model of random weights: $1" "python3 makes it, and is not installed"; return 1; }
    local place=$work
    case $1 in *8b)
        [ "$fast" != "$work" ] || [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)" -le 25000000 ] || fast=$(mktemp -d /dev/shm/quire.XXXXXX)
        place=$fast ;;
    esac
    step "a model of random weights: $1" 120 "model_$1.txt" python3 tools/gpu_model.py "$1" "$place/$1" || return
    model=$place/$1
    cp tools/demo_model/model/tokenizer*.json "$model/" # an engine looks for one
}
latency() { # file name, limit, arguments
    local name=$1 limit=$2
    shift 2
    run "latency: ${model##*/}: ${*//"$work/"/}" "$limit" "latency_$name.json" quire bench latency "$model" --device cuda --json "$@"
}
throughput() { # file name, limit, arguments
    local name=$1 limit=$2
    shift 2
    run "throughput: ${model##*/}: ${*//"$work/"/}" "$limit" "throughput_$name.json" quire bench throughput "$model" --device cuda --json "$@"
}

# From exec to an engine that takes requests, in milliseconds; cold: its files are not in memory.
ready_once() { # cold or warm
    local began from pid=0 file
    if [ "$1" = cold ]; then
        for file in "$model"/* $bundle/bin/* $bundle/lib/*.so*; do # their pages go, and nothing of them changes
            [ ! -f "$file" ] || { sync "$file"; dd if="$file" iflag=nocache count=0 2>/dev/null; }
        done
    fi
    rm -f "$work/engine.log" "$work/engine.sock"
    began=$SECONDS
    from=$(date +%s%N)
    "${quire[@]}" engine "$model" --listen "unix:$work/engine.sock" --device cuda ${small:+--max-model-len 64 --max-num-seqs 2 --num-kv-blocks 16} >"$work/engine.log" 2>&1 &
    pid=$!
    until grep -q "ready on" "$work/engine.log" 2>/dev/null; do
        kill -0 $pid 2>/dev/null || { cat "$work/engine.log" >&2; return 1; }
        [ $((SECONDS - began)) -lt "$limit" ] || { kill -9 $pid; return 124; }
        sleep 0.01
    done
    printf '%s\n' $((($(date +%s%N) - from) / 1000000))
    kill $pid
    for tick in $(seq 50); do kill -0 $pid 2>/dev/null && sleep 0.1; done
    if kill -9 $pid 2>/dev/null; then echo "the engine did not end within 5 s and was killed" >&2; fi
    wait $pid 2>/dev/null
    cp "$work/engine.log" "$results/engine_${model##*/}.log" # what it took of the GPU's memory, graphs among it
    return 0
}
ready_times() { # [cold]: that too
    local warm cold=null
    warm=$(ready_once warm) || return
    [ $# = 0 ] || cold=$(ready_once cold) || return
    printf '{"model":"%s","warm_ms":%s,"cold_ms":%s}\n' "${model##*/}" "$warm" "$cold"
}

# cuBLASLt for --invariance off lies off the loader's path where pip or an image put it.
cublaslt_folder() {
    local folder
    for folder in $(ldconfig -p 2>/dev/null | sed -nE 's/.*libcublasLt\.so\.1[23] .* => (.*)\/[^/]*$/\1/p') \
        $(python3 -c 'import site, sys; print("\n".join(p + "/nvidia/" + f + "/lib" for p in [*site.getsitepackages(), *sys.path] if p for f in ("cu13", "cublas")))' 2>/dev/null) \
        /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib /opt/nvidia/*/lib; do
        ls "$folder"/libcublasLt.so.1[23] >/dev/null 2>&1 && echo "$folder" && return
    done
    return 1
}
without_invariance() { # what invariance costs: the same with NVIDIA's GEMM for many tokens
    local folder path=${LD_LIBRARY_PATH:-} ours=("${loader[@]}")
    folder=$(cublaslt_folder) || { skip "throughput, --invariance off" "cuBLASLt is not installed"; return; }
    export LD_LIBRARY_PATH="$folder${path:+:$path}"
    [ ${#loader[@]} = 0 ] || loader[2]="${loader[2]}:$folder"
    throughput off_llama-3.1-8b 60 "$@" --invariance off
    loader=("${ours[@]}")
    if [ -n "$path" ]; then export LD_LIBRARY_PATH=$path; else unset LD_LIBRARY_PATH; fi
}

# Clocks, power and why they are held back, while a step runs.
watched() { # command...
    local pid="" status
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu,clocks_event_reasons.active --format=csv,noheader,nounits \
            -lms 500 >>"$results/clocks.csv" 2>/dev/null &
        pid=$!
        background=$pid
    fi
    "$@"
    status=$?
    [ -z "$pid" ] || { kill "$pid"; wait "$pid"; background=""; } 2>/dev/null
    return $status
}

bench_small_engine() {
    if [ -n "$small" ]; then
        make_model tiny || return
        latency tiny 30 --batch-size 2 --input-len 8 --output-len 3 --num-iters 1 --num-iters-warmup 0 --max-model-len 64 --max-num-seqs 2 --num-kv-blocks 16
        step "exec to ready: tiny" 30 ready_tiny.json ready_times cold
        return
    fi
    make_model qwen3-0.6b || return
    latency 1_qwen3-0.6b 30 --batch-size 1 --input-len 128 --output-len 256 --num-iters 5 --num-iters-warmup 1 --max-model-len 4096
    python3 tools/gpu_model.py lengths "$work/lengths.csv" &&
        throughput nano_qwen3-0.6b 60 --dataset sharegpt --dataset-path "$work/lengths.csv" --num-prompts 256 --max-model-len 4096
    step "exec to ready: qwen3-0.6b" 30 ready_qwen3-0.6b.json ready_times cold
    latency 1_eager_qwen3-0.6b 30 --batch-size 1 --input-len 128 --output-len 128 --num-iters 3 --num-iters-warmup 1 --max-model-len 4096 --enforce-eager
}
bench_8b() {
    local served="--num-prompts 500 --input-len 202 --output-len 179 --max-model-len 4096"
    make_model llama-3.1-8b || return
    latency 1_llama-3.1-8b 40 --batch-size 1 --input-len 128 --output-len 128 --num-iters 3 --num-iters-warmup 1 --max-model-len 16384
    latency 8k_llama-3.1-8b 40 --batch-size 1 --input-len 8192 --output-len 2 --num-iters 3 --num-iters-warmup 1 --max-model-len 16384
    watched latency 64_llama-3.1-8b 50 --batch-size 64 --input-len 1024 --output-len 64 --num-iters 1 --num-iters-warmup 1 --max-model-len 4096
    step "exec to ready: llama-3.1-8b" 40 ready_llama-3.1-8b.json ready_times
    throughput 500_llama-3.1-8b 60 $served
    without_invariance $served
}
bench_qwen_8b() {
    make_model qwen3-8b || return
    watched throughput 256_qwen3-8b 100 --num-prompts 256 --input-len 1024 --output-len 1024 --max-model-len 4096
}
bench_seeds() { # four prompts of a chat, 512 tokens each: one by one, and together
    make_model qwen2.5-1.5b || return
    latency seeds_one_by_one 40 --batch-size 1 --input-len 40 --output-len 512 --num-iters 4 --num-iters-warmup 1 --max-model-len 4096
    latency seeds_together 30 --batch-size 4 --input-len 40 --output-len 512 --num-iters 2 --num-iters-warmup 1 --max-model-len 4096
}

# ---- figures: peers and counters ----

bench_peers() {
    not_here "peers" && return
    command -v python3 >/dev/null || { skip "peers" "python3 is not installed"; return; }
    step "peers, in turns with ours" 110 peers.json python3 tools/gpu_peers.py "${quire[*]}" 95
}

profile() { # name, kernels' names, arguments of bench kernels
    local name=$1 names=$2
    shift 2
    step "ncu: $name" 30 "ncu_$name.csv" tool ncu --clock-control none --csv --page raw -k "regex:$names" --launch-count 6 \
        --metrics gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__inst_executed.avg.per_cycle_elapsed,sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active,l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed,sm__warps_active.avg.pct_of_peak_sustained_active,launch__registers_per_thread,launch__occupancy_limit_registers,smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio \
        "${quire[@]}" bench kernels --device cuda --quick "$@"
}
count() {
    not_here "ncu" && return
    command -v ncu >/dev/null || { skip "ncu" "not installed"; return; }
    [ ${#loader[@]} = 0 ] || { skip "ncu" "this machine's C library is too old for the bundle's programs"; return; }
    profile gemm_small gemm_small --op gemm --rows 28672 --cols 4096 --tokens 1 --dtype bfloat16
    profile gemm_large gemm_large --op gemm --rows 28672 --cols 4096 --tokens 2048 --dtype bfloat16
    profile attention_decode attention --op attention --heads 32/8 --head-dim 128 --seqs 64x1@4095
    profile attention_prefill attention --op attention --heads 32/8 --head-dim 128 --seqs 1x4096@0
    profile rmsnorm rmsnorm --op rmsnorm --tokens 2048 --cols 4096
    profile sample sample --op sample --tokens 64 --rows 151936 --sampling top_p
}

figures() {
    rm -f "$results/clocks.csv"
    bench_kernels
    [ -n "$small" ] || bench_8b
    bench_small_engine
    bench_peers
    [ -n "$small" ] || bench_qwen_8b
    count
    [ -n "$small" ] || bench_seeds
    more_kernels
}

# ---- the report ----

# Every case of every kernels_*.json: case|median us|GB/s|GFLOP/s|limit|share.
case_rows() {
    cat "$results"/kernels_*.json 2>/dev/null |
        sed -nE 's/^,?\{"case":"([^"]*)".*"median_us":([0-9.e+-]+).*"gb_s":([0-9.e+-]+),"gflop_s":([0-9.e+-]+).*"limit":"?([a-z]+)"?,"share_of_limit":([0-9.e+a-z-]+).*/\1|\2|\3|\4|\5|\6/p'
}
case_table() {
    echo "| case | median us | GB/s | TFLOP/s | share of the limit |"
    echo "|---|---|---|---|---|"
    awk -F'|' '{ share = $6 == "null" ? "-" : sprintf("%.0f %% of %s", 100 * $6, $5 == "fma" ? "mma" : $5)
                 printf "| %s | %.1f | %.1f | %.2f | %s |\n", $1, $2, $3, $4 / 1000, share }' "$work/rows"
}

# Figures by goal. A value is empty where there is none; then the reason stands there.
goal() { printf '| %s | %s |\n' "$1" "${2:-not measured: ${3:-its step has no figure above}}"; }
reads() { # regular expression of a case: GB/s, and its share of the datasheet's memory bandwidth
    awk -F'|' -v want="$1" -v all="$datasheet" '$1 ~ want { printf "%.1f us, %.0f GB/s%s", $2, $3, all ? sprintf(" = %.2f of the datasheet", $3 / all) : ""; exit }' "$work/rows"
}
multiplies() { awk -F'|' -v want="$1" '$1 ~ want { printf "%.1f us, %.0f TFLOP/s", $2, $4 / 1000; exit }' "$work/rows"; }
takes() { awk -F'|' -v want="$1" '$1 ~ want { printf "%.1f us", $2; exit }' "$work/rows"; }
of_bytes() { # file, field in seconds, bytes read in that time
    local seconds
    seconds=$(field "$1" "$2")
    [ -z "$seconds" ] || awk -v s="$seconds" -v b="$3" -v all="$datasheet" 'BEGIN { printf "%.2f ms, %.0f GB/s of weights%s", s * 1e3, b / s * 1e-9, all ? sprintf(" = %.2f of the datasheet", b / s * 1e-9 / all) : "" }'
}
figure() { # file, field, factor, unit
    local x
    x=$(field "$1" "$2")
    [ -z "$x" ] || awk -v x="$x" -v f="$3" -v u="$4" 'BEGIN { printf "%.4g %s", x * f, u }'
}
both() { [ -z "$1" ] || [ -z "$2" ] || printf '%s; %s' "$1" "$2"; }
over() { # two cases: GB/s of the first over the second's
    awk -F'|' -v a="$1" -v b="$2" '$1 ~ a && !x { x = $3 } $1 ~ b && !y { y = $3 } END { if (x && y) printf "%.3f", x / y }' "$work/rows"
}
goals() {
    local decode="^attention float16 mma 32/8 heads of 128, blocks of" none_here="a server's under load, for longer than a call" host="the host's, measured on any CPU"
    echo "| published figure or goal | here |"
    echo "|---|---|"
    goal "decode attention, 16 × 4k" "$(reads "$decode 16, window 0, from 4095 .* 12 more T16")"
    goal "decode attention, 64 × 4k" "$(reads "$decode 16, window 0, from 4095 .* 60 more T64")"
    goal "decode attention, 64 × 1k" "$(reads "$decode 16, window 0, from 1023 .* 60 more T64")"
    for length in 511 2047 8191; do
        goal "decode attention, 32/4 heads, 64 × $((length + 1)) (FlashInfer's figure)" "$(reads "mma 32/4 .*from $length .* 60 more T64")"
    done
    goal "decode attention, one of 128k (split)" "$(reads "$decode 16, window 0, from 131071 T1")"
    goal "decode attention, lengths by Zipf over equal ones, of bandwidth" "$(over "$decode 16, window 0, from 32767 .* 12 more T16" "$decode 16, window 0, from 4095 .* 12 more T16")"
    goal "pages of 16 over pages of 128, decode" "$(over "$decode 16, window 0, from 4095 .* 12 more T16" "$decode 128, window 0, from 4095 .* 12 more T16")"
    goal "the same, against contiguous K and V" "" "the peers' rows are of contiguous K and V: see peers"
    goal "decode attention with FP8 KV, 16 × 4k" "$(reads "^attention float8_e4m3 32/8 heads of 128, blocks of 16, window 0, from 4095")"
    goal "decode attention, XQA; MLA" "" "there is no such model"
    goal "attention of a shared prefix (cascade)" "" "a prefix is shared in memory, and read by each sequence"
    goal "prefill attention, 8k causal" "$(multiplies "$decode 16, window 0, from 0 T8192")"
    goal "prefill attention, 16k causal" "$(multiplies "$decode 16, window 0, from 0 T16384")"
    goal "prefill attention, 1k and 4k causal; 32k paged" "" "8k and 16k stand for them"
    goal "GEMV, 28672 × 4096" "$(reads "^gemm bfloat16 mma T1 N28672 K4096")"
    goal "GEMM of 8 tokens; of 16" "$(both "$(reads "^gemm bfloat16 mma T8 N28672 K4096")" "$(reads "^gemm bfloat16 mma T16 N28672 K4096")")"
    goal "GEMV, narrow: o 4096 × 4096; down 4096 × 14336" "$(both "$(reads "^gemm bfloat16 mma T1 N4096 K4096 segments")" "$(reads "^gemm bfloat16 mma T1 N4096 K14336 segments")")"
    goal "GEMM of 64 tokens: o; down" "$(both "$(reads "^gemm bfloat16 mma T64 N4096 K4096 segments")" "$(reads "^gemm bfloat16 mma T64 N4096 K14336 segments")")"
    goal "GEMV, 73728 × 12288 (cuBLAS 591.8 us on Hopper)" "$(reads "^gemm bfloat16 mma T1 N73728 K12288")"
    goal "the same, 32 tokens" "$(reads "^gemm bfloat16 mma T32 N73728 K12288")"
    goal "GEMM of prefill, 28672 × 4096, 2,048 tokens" "$(multiplies "^gemm bfloat16 mma T2048 N28672 K4096")"
    goal "GEMV of int4 weights, groups of 128, 28672 × 4096" "$(reads "^gemm int4 of 128 T1 N28672 K4096")"
    goal "GEMV of int8 weights; of Q4_K, by int8" "$(both "$(reads "^gemm int8 of a row T1 N28672 K4096")" "$(reads "^gemm q4_k int8 T1 N28672 K4096")")"
    goal "fused MoE" "" "there are no mixtures of experts"
    goal "RMSNorm with the residual, 2048 × 4096; one token" "$(both "$(reads "^rmsnorm T2048 K4096")" "$(takes "^rmsnorm T1 K4096")")"
    goal "QK norms, RoPE and KV in one, 2,048 tokens" "$(reads "^rope_kv float16 32/8 .* T2048")"
    goal "RMSNorm of 262,144 columns (QuACK)" "" "no model has such rows"
    goal "top-p, 128 × 131,072 (FlashInfer 139 us)" "$(takes "^sample T128 N131072 top_p")"
    goal "sampling one row: greedy; top-p; all of it" "$(both "$(both "$(takes "^sample T1 N151936 greedy")" "$(takes "^sample T1 N151936 top_p")")" "$(takes "^sample T1 N151936 full")")"
    goal "8B, batch 1, a token (vLLM 6.44 ms on an H100)" "$(of_bytes latency_1_llama-3.1-8b.json avg_tpot 15.01e9)"
    goal "0.6B, batch 1, a token" "$(of_bytes latency_1_qwen3-0.6b.json avg_tpot 1.19e9)"
    goal "1B, batch 1" "" "the 0.6B shape stands for it"
    goal "0.6B, batch 1, without graphs" "$(figure latency_1_eager_qwen3-0.6b.json avg_tpot 1e3 "ms a token")"
    goal "8B, 64 sequences of 1k, a step" "$(figure latency_64_llama-3.1-8b.json avg_tpot 1e3 ms)"
    goal "8B, first token of 8k" "$(figure latency_8k_llama-3.1-8b.json avg_ttft 1e3 ms)"
    goal "8B, first token of 128" "$(figure latency_1_llama-3.1-8b.json avg_ttft 1e3 ms)"
    goal "nano-vllm's 256 requests, 0.6B" "$(figure throughput_nano_qwen3-0.6b.json output_tokens_per_second 1 "tokens/s out")"
    goal "the same, 14B" "" "28 GB of weights would take two other steps' time"
    goal "Qwen3-8B, 256 × 1,024/1,024 (SGLang 30.85 s on an H200)" "$(both "$(figure throughput_256_qwen3-8b.json elapsed_time 1 s)" "$(figure throughput_256_qwen3-8b.json output_tokens_per_second 1 "tokens/s out")")"
    goal "8B, 500 × 202/179 (ShareGPT's means; vLLM 36.9 requests/s)" "$(figure throughput_500_llama-3.1-8b.json requests_per_second 1 requests/s)"
    goal "128/128, 1000/1000, 2048/128, 20000/2000 (TensorRT-LLM, FP8)" "" "there are no FP8 weights"
    goal "70B models" "" "do not fit one GPU in BF16"
    goal "what invariance costs: tokens/s strict; off" "$(both "$(figure throughput_500_llama-3.1-8b.json output_tokens_per_second 1 "")" "$(figure throughput_off_llama-3.1-8b.json output_tokens_per_second 1 "")")"
    goal "four prompts × 512 tokens, 1.5B: each alone; together (15.78 s by transformers)" "$(both "$(figure latency_seeds_one_by_one.json avg_latency 4 "s for four")" "$(figure latency_seeds_together.json avg_latency 1 s)")"
    goal "exec to ready, 8B; 0.6B" "$(both "$(figure ready_llama-3.1-8b.json warm_ms 1e-3 s)" "$(both "$(figure ready_qwen3-0.6b.json warm_ms 1e-3 s)" "$(figure ready_qwen3-0.6b.json cold_ms 1e-3 "s cold")")")"
    goal "launches a layer" "" "the emulator counts them, in engine_launches_test"
    goal "idle between decode steps" "" "what a token takes less what its kernels take: both are above"
    goal "host time a step; 1,024 streams" "" "$host"
    goal "KV waste; cost of the prefix cache; hit rates of traces" "" "$host"
    goal "inter-token latency while prompts arrive; goodput; fairness; shortest first" "" "$none_here"
    goal "8B, 100 at once over HTTP (NIM); 50 requests a second (vLLM V1)" "" "$none_here"
    goal "speculation" "" "random weights repeat nothing"
    goal "all-reduce" "" "needs several GPUs"
    goal "figures of A10, A100, H20, B200, GB200 and of laptops" "" "another GPU's"
}
datasheet_gb_s() {
    case $gpu in *H200*) echo 4800 ;; *H100*PCIe*) echo 2039 ;; *H100*) echo 3350 ;; *A100*) echo 2039 ;; esac
}
clocks() { # under load: the rows of nvidia-smi in which the GPU was busy
    [ -s "$results/clocks.csv" ] || { echo "Clocks under load: not measured."; return; }
    awk -F', ' '$6 >= 50 { n++; sm += $2; mem = $3; watts += $4; if (!low || $2 < low) low = $2; reasons[$7]++ }
        END { if (!n) { print "Clocks under load: not measured: no sample saw the GPU busy."; exit }
              printf "Clocks under load, %d samples: SM %.0f MHz (lowest %d), memory %d MHz, %.0f W, held back by:", n, sm / n, low, mem, watts / n
              for (r in reasons) printf " %s in %d", r, reasons[r]
              print "." }' "$results/clocks.csv"
}
# Measured over predicted, worst first. Where a step was measured on a GPU that has no predictions there is no table.
predictions() {
    local name
    case $gpu in *H200*) name=H200 ;; *H100*) name=H100 ;; *) echo "There are predictions for the H100 and the H200 only."; return ;; esac
    {
        cat "$work/rows"
        for name_of in "8B:latency_1_llama-3.1-8b.json" "0.6B:latency_1_qwen3-0.6b.json"; do
            printf 'step of one sequence, %s|%s\n' "${name_of%%:*}" "$(figure "${name_of#*:}" avg_tpot 1e6 "")"
        done
    } | awk -F'|' -v gpu=$name '
        FNR == NR { if ($1 == gpu) predicted[$2] = $3; next }
        ($1 in predicted) && $2 > 0 && !seen[$1]++ { printf "%.3f|%s|%.1f|%.1f\n", $2 / predicted[$1], $1, $2, predicted[$1] }' tools/gpu_predicted.txt - |
        sort -t'|' -rn | awk -F'|' '
        BEGIN { print "| case | measured us | predicted us | measured / predicted |\n|---|---|---|---|" }
        { printf "| %s | %s | %s | %.2f |\n", $2, $3, $4, $1 }'
}
write_report() { # [whole]: with the tables, once a call, since they take a while; after each step what was printed suffices
    local file part
    [ $# = 0 ] || case_rows >"$work/rows"
    datasheet=$(datasheet_gb_s)
    {
        echo "# GPU check"
        echo
        [ $emulator = 0 ] || printf 'On the emulator of tests/simt: nothing here is a measurement.\n\n'
        printf '%s\n\n' "$gpu"
        if [ -s "$results/limits.json" ]; then
            echo "Limits, measured first: read $(field limits.json read_gb_s) GB/s, copy $(field limits.json copy_gb_s) GB/s (bytes read and written), mma.sync of f16 $(field limits.json mma_f16_tflop_s) TFLOP/s."
        else
            echo "Limits: not measured."
        fi
        clocks
        for part in conformance figures; do
            [ -s "$results/steps_$part.md" ] || { printf '\n## %s: not run\n' "$part"; continue; }
            printf '\n## %s\n\n| step | result | s | |\n|---|---|---|---|\n' "$part"
            cat "$results/steps_$part.md"
        done
        if [ "${1:-}" = whole ] && [ -s "$results/steps_figures.md" ]; then
            printf '\n## Goals and published figures\n\n'
            goals
            printf '\n## Against the prediction\n\n'
            predictions
            printf '\n## Kernels\n\n'
            case_table
        fi
        [ $# = 0 ] || for file in "$results"/probe.json "$results"/latency_*.json "$results"/throughput_*.json "$results"/ready_*.json "$results"/peers.json "$results"/ncu_*.csv; do
            [ -s "$file" ] && printf '\n%s:\n\n```\n%s\n```\n' "${file##*/}" "$(grep -v '^==' "$file" | cut -c1-2000 | head -60)"
        done
    } >"$work/report.md"
    mv "$work/report.md" "$out/report.md"
    tar -C "$work" -czf "$work/results.tar.gz" results && cp "$work/results.tar.gz" "$out/results.tar.gz"
    mkdir -p "$keep" 2>/dev/null && cp "$work/results.tar.gz" "$keep/" && { [ ! -e $bundle/MANIFEST ] || cp $bundle/MANIFEST "$keep/"; }
}

# ---- the calls ----

describe_machine >"$results/machine.txt" 2>&1
no_gpu=0
timeout -k 5 60 "${quire[@]}" bench kernels --device cuda --quick --op rmsnorm --tokens 1 --cols 64 >"$work/gpu" 2>&1
gpu=$(head -1 "$work/gpu")
case $gpu in *", sm_"*) ;; *) no_gpu=1 ;; esac # it opens: a kernel that fails is a step's matter
for call in $calls; do
    : >"$results/steps_$call.md"
    begun=$SECONDS
    measure_limits
    [ -s "$results/probe.json" ] && [ $call = figures ] || probe
    case $no_gpu,$gpu in
        0,*"NOT LOADED"*) failed=1; row "a GPU" FAILED 0 "$gpu" ;;
        0,*) row "a GPU" ok 0 "$gpu" ;;
        *) failed=1; row "a GPU" FAILED 0 "$gpu"; write_report whole; continue ;;
    esac
    $call
    write_report whole
done
write_report whole
say "$([ $failed = 0 ] && echo "nothing failed" || echo "$failed steps failed"), after $SECONDS s: $out/report.md"
[ $no_gpu = 0 ] || exit 2
[ $failed = 0 ]
