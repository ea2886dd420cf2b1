#include "server/front/llama_cpp/llama_cpp.h"

#include <stdio.h>

#define RANDOM_SEED 4294967295u /* llama.cpp's value for a random seed */

static void put_number(struct buffer *o, const char *name, double value)
{
    char text[96];
    snprintf(text, sizeof text, ",\"%s\":%.9g", name, value);
    json_out_raw(o, text);
}

static void put_flag(struct buffer *o, const char *name, bool value)
{
    char text[96];
    snprintf(text, sizeof text, ",\"%s\":%s", name, value ? "true" : "false");
    json_out_raw(o, text);
}

static void put_stops(struct buffer *o, const struct stop_set *stops)
{
    json_out_raw(o, ",\"stop\":[");
    for (size_t i = 0; stops && i < stops->n; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        json_out_string(o, stops->strings[i], stops->bytes[i]);
    }
    json_out_raw(o, "]");
}

static void put_biases(struct buffer *o, const struct request_spec *s)
{
    char text[64];
    json_out_raw(o, ",\"logit_bias\":[");
    for (uint32_t i = 0; i < s->n_biases; i++) {
        snprintf(text, sizeof text,
                 s->biases[i].bias < -100 ? "%s{\"token\":%u,\"bias\":null}" : "%s{\"token\":%u,\"bias\":%.9g}",
                 i > 0 ? "," : "", s->biases[i].id, (double)s->biases[i].bias);
        json_out_raw(o, text);
    }
    json_out_raw(o, "]");
}

/* The samplers that Quire does not have are off. */
static void put_off(struct buffer *o)
{
    json_out_raw(o, ",\"dynatemp_range\":0.0,\"dynatemp_exponent\":1.0,\"typical_p\":1.0,\"top_n_sigma\":-1.0,"
                    "\"xtc_probability\":0.0,\"xtc_threshold\":0.1,\"dry_multiplier\":0.0,\"dry_base\":1.75,"
                    "\"dry_allowed_length\":2,\"dry_penalty_last_n\":-1,\"dry_sequence_breakers\":[],\"mirostat\":0,"
                    "\"mirostat_tau\":5.0,\"mirostat_eta\":0.1,\"repeat_last_n\":-1,\"n_keep\":0,\"n_discard\":0,"
                    "\"min_keep\":0,\"post_sampling_probs\":false,\"lora\":[],"
                    "\"samplers\":[\"penalties\",\"temperature\",\"top_k\",\"top_p\",\"min_p\"]");
}

void llama_cpp_put_settings(struct buffer *o, const struct params *p)
{
    const struct request_spec *s = p->spec;
    const double n_predict = p->has_max_tokens ? (double)p->max_tokens : -1;
    json_out_raw(o, "{\"seed\":");
    json_out_u64(o, s->has_seed ? s->seed : RANDOM_SEED);
    put_number(o, "temperature", (double)s->temperature);
    put_number(o, "top_k", s->top_k);
    put_number(o, "top_p", (double)s->top_p);
    put_number(o, "min_p", (double)s->min_p);
    put_number(o, "repeat_penalty", (double)s->repetition_penalty);
    put_number(o, "presence_penalty", (double)s->presence_penalty);
    put_number(o, "frequency_penalty", (double)s->frequency_penalty);
    put_number(o, "n_predict", n_predict);
    put_number(o, "max_tokens", n_predict);
    put_number(o, "n_probs", s->n_logprobs > 0 ? s->n_logprobs : 0);
    put_flag(o, "ignore_eos", s->ignore_eos);
    put_flag(o, "stream", p->stream);
    put_flag(o, "timings_per_token", p->continuous_usage);
    put_stops(o, p->stops);
    put_biases(o, s);
    json_out_raw(o, ",\"grammar\":");
    json_out_text(o, p->grammar ? p->grammar->text : "");
    put_off(o);
    json_out_raw(o, "}");
}
