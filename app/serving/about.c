#include "app/serving/about.h"

#include "engine/model/config.h"
#include "kernels/format.h"
#include "server/front/model_about.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Sums the weights' files: the one GGUF, or the directory's safetensors. */
static uint64_t weights_bytes(const char *path, bool is_gguf)
{
    struct stat info;
    struct dirent *entry;
    uint64_t n = 0;
    if (is_gguf)
        return stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
    DIR *dir = opendir(path);
    while (dir && (entry = readdir(dir))) {
        const char *end = strrchr(entry->d_name, '.');
        if (end && strcmp(end, ".safetensors") == 0 && fstatat(dirfd(dir), entry->d_name, &info, 0) == 0)
            n += (uint64_t)info.st_size;
    }
    if (dir)
        closedir(dir);
    return n;
}

/* "qwen2" for "Qwen2ForCausalLM". */
static void make_family(const char *architecture, char *out, size_t n_bytes)
{
    const char *end = strstr(architecture, "For");
    const size_t n = end ? (size_t)(end - architecture) : strlen(architecture);
    snprintf(out, n_bytes, "%.*s", (int)n, architecture);
    for (char *c = out; *c; c++)
        *c = (char)tolower((unsigned char)*c);
}

void serving_about(struct model_about *about, const char *path, const struct model_config *config)
{
    const char *end = strrchr(path, '.');
    const bool is_quantized = config->quantization && config->quantization->layout != QUANTIZATION_NONE;
    about->is_gguf = end && strcmp(end, ".gguf") == 0;
    about->n_bytes = weights_bytes(path, about->is_gguf);
    make_family(config->architecture, about->family, sizeof about->family);
    snprintf(about->quantization, sizeof about->quantization, "%s",
             is_quantized ? quantization_name(config->quantization) : k_dtype_name(config->dtype));
}
