#!/usr/bin/env bash
# One command for a machine with a GPU: are its answers right, and how near to its limits is it? Within 8 minutes.
#
#   bash tools/gpu_check.sh OUT_DIR                    in a bundle of tools/gpu_bundle.sh, or in the source tree, where it makes one first
#   bash tools/gpu_check.sh OUT_DIR --emulator [--build BUILD]
#                                                      with the preset simt, on tiny sizes: proves this script, and measures nothing
#
# Writes OUT_DIR/report.md, one table of all steps, and beside it what each step printed: JSON where it is figures. Every
# step has a limit of its own, and none stops the next. Exit status: 0 when everything that ran was right; 1 when
# something failed; 2 when there was nothing to run on. What could not be measured says so.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
say() { printf 'gpu_check: %s\n' "$*" >&2; }
usage() { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }

out="" build="" emulator=0
while [ $# -gt 0 ]; do
    case $1 in
        --build) [ $# -gt 1 ] || usage; build=$2; shift ;;
        --emulator) emulator=1 ;;
        -*) usage ;;
        *) [ -z "$out" ] || usage; out=$1 ;;
    esac
    shift
done
[ -n "$out" ] || usage
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
[ -z "$build" ] || build=$(cd "$build" && pwd) || exit 2
cd "$root" || exit 2
report=$out/report.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ---- programs ----

if [ $emulator = 1 ]; then
    [ -n "$build" ] || [ -x bin/quire ] || build=$root/build-simt
elif [ -z "$build" ] && [ ! -x bin/quire ]; then
    bash tools/gpu_bundle.sh "$work/bundle.tar.gz" && tar -C "$work" -xf "$work/bundle.tar.gz" || exit 2
    bash "$work/quire-gpu/tools/gpu_check.sh" "$out"
    exit
fi
program() { # prints where a program lies; nothing where it is not
    local place
    for place in bin ${build:+"$build" "$build/tests/kernels" "$build/tests/engine"}; do
        [ -x "$place/$1" ] && echo "$place/$1" && return
    done
}
# In a build tree tests lie elsewhere than libquire_cuda.so; in a bundle everything finds its libraries.
[ -z "$build" ] || export LD_LIBRARY_PATH="$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# A machine whose C library is older than the bundle's runs on the bundle's own.
loader=()
if [ -x lib/libc/ld-linux-x86-64.so.2 ] && ! bin/quire version >/dev/null 2>&1; then
    loader=(lib/libc/ld-linux-x86-64.so.2 --library-path "$root/lib/libc:$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
fi
quire=$(program quire)
[ -n "$quire" ] || { say "there is no quire${build:+ in $build}: build it first"; exit 2; }

# ---- steps ----

failed=0
budget=${QUIRE_GPU_CHECK_SECONDS:-480}
table=""
row() { # step, result, seconds, what it said
    table="$table| $1 | $2 | $3 | ${4//|//} |"$'\n'
    say "$1: $2${4:+ ($4)}"
}
skip() { row "$1" "not measured" "" "$2"; }

# step NAME LIMIT_S FILE COMMAND...: standard output goes to FILE, errors to FILE.err.
step() {
    local name=$1 limit=$2 file=$3 left=$((budget - SECONDS)) begun=$SECONDS status note
    shift 3
    [ $left -ge 5 ] || { skip "$name" "the $budget seconds are over"; return 1; }
    [ "$limit" -le $left ] || limit=$left
    if declare -F "$1" >/dev/null; then # a function limits its own commands
        "$@" >"$out/$file" 2>"$out/$file.err"
    else
        timeout -k 5 "$limit" "$@" >"$out/$file" 2>"$out/$file.err"
    fi
    status=$?
    note=$(cat "$out/$file.err" "$out/$file" | grep -vE '^ *$|^\[=+\]' | tail -1 | cut -c1-140)
    [ -s "$out/$file.err" ] || rm -f "$out/$file.err"
    case $status in
        0) case $file in *.json) note="" ;; esac; row "$name" ok $((SECONDS - begun)) "$note"; return 0 ;;
        77) skip "$name" "$note" ;;
        124 | 137) row "$name" FAILED $((SECONDS - begun)) "ran longer than $limit s" ;;
        *) row "$name" FAILED $((SECONDS - begun)) "status $status: $note" ;;
    esac
    [ $status = 77 ] || failed=$((failed + 1))
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
field() { sed -nE "s/.*\"$2\":([0-9.eE+-]+).*/\1/p" "$out/$1" 2>/dev/null | head -1; }

small="" # set on the emulator: tiny sizes
[ $emulator = 0 ] || { small=1; export QUIRE_SIMT_MEMORY_MIB=2048; }
export CMOCKA_MESSAGE_OUTPUT=STDOUT

# ---- the machine ----

{
    date -u
    "${loader[@]}" "$quire" version
    [ ! -e MANIFEST ] || head -4 MANIFEST
    uname -srm
    lscpu 2>/dev/null | grep -E '^(Model name|CPU\(s\)|Thread)'
    ldd --version 2>/dev/null | head -1
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi
        nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,clocks.sm,clocks.mem,power.limit,temperature.gpu --format=csv
        nvidia-smi -q -d CLOCK,PERFORMANCE | head -60
    else
        echo "nvidia-smi: not installed"
    fi
    python3 -c 'import sys; print("python", sys.version.split()[0])' 2>&1
    for package in torch transformers vllm; do
        python3 -c "import importlib.metadata as m; print('$package', m.version('$package'))" 2>/dev/null || echo "$package: not installed"
    done
} >"$out/machine.txt" 2>&1
gpu=$("${loader[@]}" "$quire" bench kernels --device cuda --quick --op rmsnorm --tokens 1 --cols 64 2>&1 | head -1)
case $gpu in
    quire:*) row "a GPU" FAILED 0 "$gpu"; failed=1; no_gpu=1 ;;
    *) row "a GPU" ok 0 "$gpu"; no_gpu=0 ;;
esac


check_answers() { # greedy answers of GPU and CPU, the lane form: the same text
    local prompt device
    for prompt in "Tell me a story." "What is 27 plus 48?"; do
        for device in cpu cuda; do
            timeout 30 "${loader[@]}" "$quire" generate tools/demo_model/model "$prompt" --device $device --gemm-form lane --temperature 0 --max-tokens "$1" \
                --max-model-len 256 --json >"$work/$device.json" || return 1
        done
        cat "$work/cuda.json"
        cmp "$work/cpu.json" "$work/cuda.json" || { echo "CPU: $(cat "$work/cpu.json")"; return 1; }
    done
    echo "two answers are the CPU's to the letter"
}

conformance() {
    run "kernels against the page" 150 kernels.txt kernels_test --backend cuda ${small:+--case "T1 N7 K16"}
    if [ -n "$small" ]; then skip "sampling" "too long for the emulator here"; else
        run "sampling" 60 sample.txt kernels_sample_test cuda
        run "sampling, edges" 60 sample_edges.txt kernels_sample_edges_test cuda
    fi
    run "a step's operations" 60 step.txt kernels_step_test cuda
    local test
    for test in golden bits invariance sampling requests; do
        if [ -n "$small" ]; then skip "engine: $test" "the preset simt has tests of its own"; else
            run "engine: $test" 90 "engine_$test.txt" "engine_${test}_cuda_test"
        fi
    done
    step "answers, lane form, GPU and CPU" 60 answers.txt check_answers $([ -n "$small" ] && echo 4 || echo 60)
}

sanitize() { # tool
    if [ $emulator = 1 ]; then skip "compute-sanitizer $1" "an emulator"; return; fi
    command -v compute-sanitizer >/dev/null || { skip "compute-sanitizer $1" "not installed"; return; }
    [ ${#loader[@]} = 0 ] || { skip "compute-sanitizer $1" "this machine's C library is too old for the bundle's programs"; return; }
    local path case
    path=$(program kernels_test)
    [ -n "$path" ] || { skip "compute-sanitizer $1" "kernels_test was not built"; return; }
    for case in "gemm bfloat16" "attention float16 6/2"; do
        step "compute-sanitizer $1, $case" 45 "sanitizer_$1_${case%% *}.txt" compute-sanitizer --tool "$1" --error-exitcode 86 "$path" --backend cuda --case "$case"
    done
}

# ---- figures ----

limits=()
measure_limits() {
    if [ $emulator = 1 ]; then skip "limits of the GPU" "an emulator"; return; fi
    run "limits of the GPU" 60 limits.json gpu_limits || return
    limits=(--limit-gb-s "$(field limits.json read_gb_s)" --limit-tflop-s "$(field limits.json mma_f16_tflop_s)")
}

kernel_bench() { # file name, arguments of bench kernels
    local file=$1
    shift
    run "kernels: ${*:-the table}" 90 "$file" quire bench kernels --device cuda --json "${limits[@]}" "$@"
}
bench_kernels() {
    if [ -n "$small" ]; then
        kernel_bench kernels_gemm.json --quick --op gemm --rows 64 --cols 48 --tokens 1,5 --dtype bfloat16
        kernel_bench kernels_attention.json --quick --op attention --heads 4/2 --head-dim 32 --seqs 2x1@70
        return
    fi
    # Layers of a 1.5B and of an 8B model: what decoding, a small batch and prefill ask of them.
    kernel_bench kernels_gemm_1.5b.json --op gemm --rows 17920 --cols 1536 --tokens 1,8,32,64,256,2048 --dtype bfloat16
    kernel_bench kernels_gemm_8b_up.json --op gemm --rows 28672 --cols 4096 --tokens 1,8,32,64,256,2048 --dtype bfloat16
    kernel_bench kernels_gemm_8b_o.json --op gemm --rows 4096 --cols 4096 --tokens 1,8,32,64,256,2048 --dtype bfloat16
    kernel_bench kernels_gemm_8b_down.json --op gemm --rows 4096 --cols 14336 --tokens 1,8,32,64,256,2048 --dtype bfloat16
    kernel_bench kernels_attention_decode.json --op attention --heads 32/8 --head-dim 128 --seqs 64x1@4096
    kernel_bench kernels_attention_one.json --op attention --heads 32/8 --head-dim 128 --seqs 1x1@32767
    kernel_bench kernels_attention_1.5b.json --op attention --heads 12/2 --head-dim 128 --seqs 64x1@2048
    kernel_bench kernels_attention_prefill.json --op attention --heads 32/8 --head-dim 128 --seqs 1x2048@0
    kernel_bench kernels_attention_mixed.json --op attention --heads 32/8 --head-dim 128 --seqs 63x1@2048,1x512@4096
    kernel_bench kernels_sample.json --op sample --tokens 1,64 --rows 151936
    kernel_bench kernels_table.json
}

has_cublaslt() { # what --invariance off opens; python3 made the models, so it is there
    local release
    for release in 13 12; do
        python3 -c "import ctypes; ctypes.CDLL('libcublasLt.so.$release')" 2>/dev/null && return
    done
    return 1
}
engine_bench() { # model directory, its name
    if [ -n "$small" ]; then
        run "latency: $2" 30 "latency_$2.json" quire bench latency "$1" --device cuda --batch-size 2 --input-len 8 --output-len 3 --num-iters 1 \
            --num-iters-warmup 0 --max-model-len 64 --max-num-seqs 2 --num-kv-blocks 16 --json
        skip "throughput, --invariance off: $2" "an emulator"
        return
    fi
    run "latency, batch 1: $2" 60 "latency_1_$2.json" quire bench latency "$1" --device cuda --batch-size 1 --input-len 128 --output-len 128 \
        --num-iters 5 --num-iters-warmup 1 --max-model-len 4096 --json
    run "latency, batch 1, no graphs: $2" 60 "latency_1_eager_$2.json" quire bench latency "$1" --device cuda --batch-size 1 --input-len 128 \
        --output-len 128 --num-iters 3 --num-iters-warmup 1 --max-model-len 4096 --enforce-eager --json
    run "throughput, 256 requests: $2" 60 "throughput_$2.json" quire bench throughput "$1" --device cuda --num-prompts 256 --input-len 512 \
        --output-len 128 --max-model-len 4096 --json
    # What invariance costs: the same with NVIDIA's GEMM for many tokens, where its library is.
    if has_cublaslt; then
        run "throughput, --invariance off: $2" 60 "throughput_off_$2.json" quire bench throughput "$1" --device cuda --num-prompts 256 \
            --input-len 512 --output-len 128 --max-model-len 4096 --invariance off --json
    else
        skip "throughput, --invariance off: $2" "libcublasLt.so.13 or .12 is not on the loader's path"
    fi
}
bench_engine() {
    local shape shapes="qwen3-0.6b qwen2.5-1.5b"
    [ -z "$small" ] || shapes=tiny
    command -v python3 >/dev/null || { skip "engine benchmarks" "python3 makes the models, and is not installed"; return; }
    for shape in $shapes; do
        step "a model of random weights: $shape" 60 "model_$shape.txt" python3 tools/gpu_model.py "$shape" "$work/$shape" || continue
        engine_bench "$work/$shape" "$shape"
    done
}

bench_peers() {
    if [ -n "$small" ]; then skip "peers" "an emulator"; return; fi
    python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || { skip "peers" "torch with CUDA is not installed"; return; }
    step "peers: cuBLAS, SDPA, transformers" 120 peers.json python3 tools/gpu_peers.py "${loader[*]} $quire" "$work/qwen3-0.6b"
}

# ---- the report ----

figures() { # every case of every kernels_*.json as a row
    local file
    echo "| case | median us | GB/s | TFLOP/s | share of the limit |"
    echo "|---|---|---|---|---|"
    for file in "$out"/kernels_*.json; do
        [ -e "$file" ] || continue
        sed 's/.*"cases":\[//; s/},{/\n/g' "$file" | while IFS= read -r line || [ -n "$line" ]; do
            printf '%s\n' "$line" | sed -nE 's/.*"case":"([^"]*)".*"median_us":([0-9.e+-]+).*"gb_s":([0-9.e+-]+),"gflop_s":([0-9.e+-]+).*"limit":"?([a-z]+)"?,"share_of_limit":([0-9.e+a-z-]+).*/\1|\2|\3|\4|\5|\6/p'
        done
    done | awk -F'|' '{ share = $6 == "null" ? "-" : sprintf("%.0f %% of %s", 100 * $6, $5 == "fma" ? "mma" : $5)
                        printf "| %s | %.1f | %.1f | %.2f | %s |\n", $1, $2, $3, $4 / 1000, share }'
}
write_report() {
    {
        echo "# GPU check"
        echo
        [ $emulator = 0 ] || echo "On the emulator of tests/simt: nothing here is a measurement."
        echo "$gpu"
        echo
        if [ -s "$out/limits.json" ]; then
            echo "Limits, measured first: read $(field limits.json read_gb_s) GB/s, copy $(field limits.json copy_gb_s) GB/s (bytes read and written), mma.sync of f16 $(field limits.json mma_f16_tflop_s) TFLOP/s."
        else
            echo "Limits: not measured."
        fi
        echo
        echo "| step | result | s | |"
        echo "|---|---|---|---|"
        printf '%s' "$table"
        echo
        figures
        for file in "$out"/latency_*.json "$out"/throughput_*.json "$out"/peers.json; do
            [ -s "$file" ] && { echo; echo "${file##*/}:"; echo; echo '```'; cut -c1-2000 "$file"; echo '```'; }
        done
    } >"$report"
}

if [ $no_gpu = 0 ]; then
    measure_limits
    if [ $emulator = 1 ]; then skip "fragments of the instructions" "an emulator"; else run "fragments of the instructions" 30 fragments.txt gpu_fragments; fi
    conformance
    bench_kernels
    bench_engine
    bench_peers
    sanitize memcheck
    sanitize racecheck
fi
write_report
say "$([ $failed = 0 ] && echo "nothing failed" || echo "$failed steps failed"), after $SECONDS s: $report"
[ $no_gpu = 0 ] || exit 2
[ $failed = 0 ]
