#!/usr/bin/env bash
# Quire and llama.cpp on the same mixture of experts, in turns: docs/benchmarks/experts.md.
#
#   python3 tools/bench/make_random_experts.py moe-bf16.gguf && llama-quantize moe-bf16.gguf moe-q4k.gguf Q4_K
#   bash tools/bench/experts.sh ROUNDS        in the directory of the two files; quire and llama-batched-bench on the PATH
set -u
for round in $(seq "${1:?usage: experts.sh ROUNDS}"); do
    for model in q4k bf16; do
        for batch in 1 16; do
            echo "round $round quire $model batch $batch"
            quire bench latency moe-$model.gguf --batch-size $batch --input-len 128 --output-len 64 --max-model-len 512 \
                --num-iters 2 --num-iters-warmup 1 2>&1 | grep -E "Prefill|Decode"
        done
        echo "round $round llama.cpp $model"
        llama-batched-bench -m moe-$model.gguf -t "$(nproc)" -c 4096 -npp 128 -ntg 64 -npl 1,16 2>/dev/null | grep -E "^\| +128"
    done
done
