/* The histograms of a front end, as a table: struct metrics, its bounds and /metrics are made of the rows. A histogram is
 * one row here and the code that observes its values. Macros only.
 *
 *   ROW(member, bounds, shown, name, help)
 *
 * bounds      ttft, itl, e2e, token or n: metrics.c has them.
 * shown       PLAIN; TO_LENGTH: bounds above max_model_len are omitted, as in vLLM; OF_BOTH: the companion model's, too;
 *             TWICE: under the name that vLLM used before, too.
 * name, help  Its texts in /metrics.
 *
 * Rows are in the order of /metrics. */
#ifndef QUIRE_FRONT_HISTOGRAM_ROWS_H
#define QUIRE_FRONT_HISTOGRAM_ROWS_H

/* clang-format off */
#define METRICS_HISTOGRAMS(ROW) \
    ROW(ttft, ttft, PLAIN, "vllm:time_to_first_token_seconds", "From a request's arrival to its first token.") \
    ROW(itl, itl, TWICE, "vllm:inter_token_latency_seconds", "Between two tokens of a choice.") \
    /* Of choices, as the four times in the engine. */ \
    ROW(tpot, itl, PLAIN, "vllm:request_time_per_output_token_seconds", \
        "Mean time between two tokens of a choice, after its first.") \
    ROW(e2e, e2e, OF_BOTH, "vllm:e2e_request_latency_seconds", "From a request's arrival to the end of its reply.") \
    ROW(queue, e2e, PLAIN, "vllm:request_queue_time_seconds", "Of a choice in the engine's queue.") \
    ROW(prefill, e2e, PLAIN, "vllm:request_prefill_time_seconds", "From the queue to a choice's first token.") \
    ROW(decode, e2e, PLAIN, "vllm:request_decode_time_seconds", "From a choice's first token to its last.") \
    ROW(inference, e2e, PLAIN, "vllm:request_inference_time_seconds", "From the queue to a choice's last token.") \
    ROW(prompt_tokens, token, TO_LENGTH, "vllm:request_prompt_tokens", "Prompt tokens of a request.") \
    ROW(generation_tokens, token, TO_LENGTH, "vllm:request_generation_tokens", "Generated tokens of a choice.") \
    ROW(most_tokens, token, TO_LENGTH, "vllm:request_max_num_generation_tokens", \
        "Generated tokens of a request's longest choice.") \
    ROW(max_tokens, token, TO_LENGTH, "vllm:request_params_max_tokens", "max_tokens of a request.") \
    ROW(n, n, PLAIN, "vllm:request_params_n", "n of a request.") \
    ROW(prefix_differs_at, token, TO_LENGTH, "quire:prefix_differs_at_tokens", \
        "The token at which a prompt first differs from the nearest one before it, of prompts that do.")
/* clang-format on */

#endif
