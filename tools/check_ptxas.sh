#!/usr/bin/env bash
# Checks the GPU kernels without a GPU: the output of ptxas, and rules for their sources.
#
#   bash tools/check_ptxas.sh [--all] [BUILD]       BUILD: a build with QUIRE_CUDA, default build
#
# --all: every GPU that a package has code for must be there (-DQUIRE_CUDA_ARCHITECTURES=all); else those are checked that are.
# Prints registers, shared memory and stack of every kernel for each GPU, and fails where one has a stack frame or spills
# (a spilled accumulator costs more than any tuning gains; ptxas says it and nothing else does), where a launch, dynamic
# shared memory or inline assembly is written outside device.cuh and ptx.cuh, or where a .cu file was not compiled, or not alone.
set -u
cd "$(dirname "$0")/.." || exit 1
gpus=""
if [ "${1:-}" = --all ]; then gpus="sm_80 sm_86 sm_89 sm_90a sm_100a sm_120a"; shift; fi
build=${1:-build}
bad=0
complain() { printf 'ptxas: %s\n' "$*" >&2; bad=1; }

for file in kernels/cuda/*.cu kernels/cuda/*.cuh kernels/cuda/*/*.cu kernels/cuda/*/*.cuh; do
    case $file in */device.cuh | */ptx.cuh | *'*'*) continue ;; esac
    # Comments may name them.
    found=$(sed -E 's@//.*@@; s@/\*.*\*/@@g; s@^ \*.*@@; s@^/\*.*@@' "$file" | grep -nE '<<<|extern +__shared__|(^|[^A-Za-z0-9_])(asm|__asm__)[^A-Za-z0-9_]' | head -3)
    [ -z "$found" ] || complain "$file: launches, dynamic shared memory and assembly belong into device.cuh and ptx.cuh: $found"
done

# Each file must compile alone with nvcc -std=c++17 -O3 -I. -Ikernels FILE: the build's command may not have further
# options.
found=$(grep -nE -- '[ ",]-(D|include|imacros|isystem)' kernels/cuda/toolchain/library.cmake | head -3)
[ -z "$found" ] || complain "kernels must compile without definitions and with the root's headers alone: $found"

logs=""
for file in kernels/cuda/*.cu kernels/cuda/*/*.cu; do
    [ -e "$file" ] || { complain "there are no kernels"; break; }
    log=$build/kernels/cuda/${file##*/}.o.log
    if [ -e "$log" ]; then logs="$logs $log"; else complain "$file was not compiled in $build"; fi
done
[ -n "$logs" ] || exit 1

# One line per kernel and GPU: file, kernel, GPU, registers, static shared bytes, stack, spills.
table=$(awk '
    function flush() {
        if (entry != "") printf "%s %s %s %d %d %d %d\n", file, entry, gpu, registers, shared, stack, spills
        entry = ""
    }
    FNR == 1 { flush(); file = FILENAME; sub(/.*\//, "", file); sub(/\.o\.log$/, "", file) }
    /Compiling entry function/ {
        flush()
        split($0, quoted, "\047"); entry = quoted[2]; gpu = quoted[4]
        registers = shared = stack = spills = 0
    }
    /bytes stack frame/ { if ($1 > stack) stack = $1; spills += $5 + $9 }
    /Used [0-9]+ registers/ {
        match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5) + 0
        if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART, RLENGTH) + 0
    }
    END { flush() }' $logs)
names=$(echo "$table" | awk '{ print $2 }' | c++filt -p 2>/dev/null | sed -E 's/^void //; s/ //g')
table=$(paste -d ' ' <(echo "$table") <(echo "$names") | awk '{ print $1, $8, $3, $4, $5, $6, $7 }')

{
    echo "file kernel GPU registers shared stack spills"
    echo "$table"
} | awk '{ printf "%-24s %-64s %-6s %9s %7s %6s %6s\n", $1, $2, $3, $4, $5, $6, $7 }'
n=$(echo "$table" | grep -c .)
for gpu in $gpus; do
    echo "$table" | grep -q " $gpu " || complain "nothing was compiled for $gpu"
done
worse=$(echo "$table" | awk '$6 > 0 || $7 > 0 { print $1 ": " $2 " on " $3 ": " $6 " bytes of stack, " $7 " bytes spilled" }')
[ -z "$worse" ] || while read -r line; do complain "$line"; done <<<"$worse"
# ptxas' own time, of all kernels; "Compile time = 34.694 ms".
seconds=$(cat $logs | awk '/Compile time/ { ms += $7 } END { printf "%.0f", ms / 1000 }')
[ $bad = 0 ] && echo "ptxas: $n compilations for $(echo "$table" | awk '{ print $3 }' | sort -u | tr '\n' ' ')in $seconds s, no stack frame, no spill"
exit $bad
