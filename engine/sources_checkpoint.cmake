# The checkpoint half of engine/: config.json, safetensors, inverse frequencies.
set(QUIRE_ENGINE_CHECKPOINT_SOURCES
    model_describe.c
    model_rope_config.c
    rope.c
    safetensors.c
    safetensors_header.c)
