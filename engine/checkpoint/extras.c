#include "engine/checkpoint/extras.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum place { AT_START, WITHIN, AT_END };

/* Names at the start stand behind an optional "model.". */
static const struct {
    const char *what;
    enum place place;
    const char *name;
} extras[] = {
    {"rotary tables", WITHIN, "rotary_emb."},
    {"rotary tables", AT_END, ".inv_freq"},
    {"rotary tables", AT_START, "rope.freqs"},
    {"rotary tables", WITHIN, ".attn_rot_embd."}, /* of old GGUF files */
    {"position ids", AT_END, "position_ids"},
    {"position ids", AT_END, "token_type_ids"},
    {"attention masks", AT_END, ".masked_bias"},
    {"attention masks", AT_END, ".causal_mask"},
    {"optimizer state", AT_START, "optimizer"},
    {"optimizer state", AT_START, "optim."},
    {"optimizer state", AT_START, "lr_scheduler"},
    {"optimizer state", WITHIN, "exp_avg"},
    {"optimizer state", AT_END, ".momentum_buffer"},
    {"optimizer state", AT_END, ".max_exp_avg_sq"},
    {"vision parts", AT_START, "vision_tower."},
    {"vision parts", AT_START, "vision_model."},
    {"vision parts", AT_START, "vision_encoder."},
    {"vision parts", AT_START, "vision_language_adapter."},
    {"vision parts", AT_START, "visual."},
    {"vision parts", AT_START, "embed_vision."},
    {"vision parts", AT_START, "image_newline"},
    {"vision parts", AT_START, "mm_projector."},
    {"vision parts", AT_START, "multi_modal_projector."},
    {"vision parts", AT_START, "patch_merger."},
    {"vision parts", AT_START, "v."}, /* GGUF's */
    {"vision parts", AT_START, "mm."},
    {"audio parts", AT_START, "audio_tower."},
    {"audio parts", AT_START, "audio_encoder."},
    {"audio parts", AT_START, "embed_audio."},
    {"audio parts", AT_START, "a."},
    {"layers that predict further tokens (MTP)", AT_START, "mtp."},
    {"layers that predict further tokens (MTP)", AT_START, "mtp_layers."},
    {"layers that predict further tokens (MTP)", AT_START, "mtp_block."},
    {"scales of a KV cache", AT_END, ".k_scale"},
    {"scales of a KV cache", AT_END, ".v_scale"},
    {"scales of a KV cache", AT_END, ".q_scale"},
    {"scales of a KV cache", AT_END, ".prob_scale"},
    {"scales of a KV cache", AT_END, ".kv_scale"},
    {"scales of a KV cache", AT_END, ".k_zero_point"},
    {"scales of a KV cache", AT_END, ".v_zero_point"},
    {"scales of a KV cache", AT_END, ".k_proj.output_scale"},
    {"scales of a KV cache", AT_END, ".v_proj.output_scale"},
    {"scales of a KV cache", AT_END, ".k_proj.output_zero_point"},
    {"scales of a KV cache", AT_END, ".v_proj.output_zero_point"},
};

static bool is_there(const char *name, const char *part, enum place place)
{
    const size_t n = strlen(name), n_part = strlen(part), n_model = strlen("model.");
    switch (place) {
    case AT_START:
        if (strncmp(name, "model.", n_model) == 0 && strncmp(name + n_model, part, n_part) == 0)
            return true;
        return strncmp(name, part, n_part) == 0;
    case WITHIN: return strstr(name, part) != NULL;
    case AT_END: break;
    }
    return n >= n_part && strcmp(name + n - n_part, part) == 0;
}

const char *checkpoint_extra(const char *name)
{
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++)
        if (is_there(name, extras[i].name, extras[i].place))
            return extras[i].what;
    return NULL;
}
