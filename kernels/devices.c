/* The GPUs that `quire plan` knows. memory_bytes is CUDA's total (cudaMemGetInfo). It is less than nvidia-smi's value
 * by the driver's reserve, and changes by 0.1 to 0.2 GiB with the driver. The values come from user reports, the lowest
 * where they differ; none of these GPUs was available here. The H100's value is set slightly below those of other 80 GB
 * cards, because there was no report.
 * Bandwidth and products are the data sheets', dense and with f32 sums; from Hopper on mma.sync has 0.62 of the sheet's
 * products (docs/benchmarks/gpu-predicted.md). */
#include "kernels/devices.h"
#include "kernels/planners.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define GIB(hundredths) (UINT64_C(hundredths) * (UINT64_C(1) << 30) / 100)

static const struct k_device devices[] = {
    {"a100-40g", &cuda_planner, "NVIDIA A100 40GB", GIB(3938), 1555e9, 312e12},
    {"a100-80g", &cuda_planner, "NVIDIA A100 80GB SXM", GIB(7914), 2039e9, 312e12},
    {"a10g", &cuda_planner, "NVIDIA A10G", GIB(2206), 600e9, 70e12},
    {"l4", &cuda_planner, "NVIDIA L4", GIB(2203), 300e9, 121e12},
    {"l40s", &cuda_planner, "NVIDIA L40S", GIB(4439), 864e9, 362e12},
    {"rtx3090", &cuda_planner, "NVIDIA GeForce RTX 3090", GIB(2368), 936e9, 71e12},
    {"rtx4080", &cuda_planner, "NVIDIA GeForce RTX 4080", GIB(1569), 717e9, 97e12},
    {"rtx4090", &cuda_planner, "NVIDIA GeForce RTX 4090", GIB(2364), 1008e9, 165e12},
    {"rtx5080", &cuda_planner, "NVIDIA GeForce RTX 5080", GIB(1545), 960e9, 112e12},
    {"rtx5090", &cuda_planner, "NVIDIA GeForce RTX 5090", GIB(3134), 1792e9, 209e12},
    {"h100", &cuda_planner, "NVIDIA H100 80GB SXM", GIB(7910), 3350e9, 0.62 * 989e12},
    {"h200", &cuda_planner, "NVIDIA H200 SXM", GIB(13972), 4800e9, 0.62 * 989e12},
    {"b200", &cuda_planner, "NVIDIA B200", GIB(17835), 8000e9, 0.62 * 2250e12},
};

const struct k_device *k_device_at(uint32_t i)
{
    return i < sizeof devices / sizeof devices[0] ? &devices[i] : NULL;
}

/* "RTX 4090" and "4090" are "rtx4090": letters and digits count, in any case, and "rtx" may be missing. */
static bool is_name(const char *known, const char *typed)
{
    if (strncmp(known, "rtx", 3) == 0 && strncasecmp(typed, "rtx", 3) != 0)
        known += 3;
    for (;; known++, typed++) {
        known += strspn(known, " -_");
        typed += strspn(typed, " -_");
        if (*known != tolower((unsigned char)*typed) || !*known)
            return *known == *typed;
    }
}

const struct k_device *k_device_find(const char *name)
{
    for (uint32_t i = 0; k_device_at(i); i++)
        if (is_name(devices[i].name, name))
            return &devices[i];
    return NULL;
}
