/* GPUs that `quire plan` knows. Memory is what CUDA calls the total (cudaMemGetInfo): it is less than nvidia-smi's by what
 * the driver keeps, and moves by 0.1 to 0.2 GiB with the driver. Taken from reports of users, the least where they differ:
 * no such GPU was at hand. Bandwidth is the datasheet's. */
#include "kernels/kernels.h"

#include <string.h>

#define GIB(hundredths) (UINT64_C(hundredths) * (UINT64_C(1) << 30) / 100)
#define GB_PER_SECOND(n) (UINT64_C(n) * 1000000000)

static const struct k_device devices[] = {
    {"a100-40g", "NVIDIA A100 40GB", GIB(3938), GB_PER_SECOND(1555)},
    {"a100-80g", "NVIDIA A100 80GB SXM", GIB(7914), GB_PER_SECOND(2039)},
    {"l4", "NVIDIA L4", GIB(2203), GB_PER_SECOND(300)},
    {"l40s", "NVIDIA L40S", GIB(4439), GB_PER_SECOND(864)},
    {"rtx4090", "NVIDIA GeForce RTX 4090", GIB(2364), GB_PER_SECOND(1008)},
    {"h100", "NVIDIA H100 80GB SXM", GIB(7910), GB_PER_SECOND(3350)},
    {"h200", "NVIDIA H200 SXM", GIB(13972), GB_PER_SECOND(4800)},
    {"b200", "NVIDIA B200", GIB(17835), GB_PER_SECOND(8000)},
};

const struct k_device *k_device_at(uint32_t i)
{
    return i < sizeof devices / sizeof devices[0] ? &devices[i] : NULL;
}

const struct k_device *k_device_find(const char *name)
{
    for (uint32_t i = 0; k_device_at(i); i++)
        if (strcmp(devices[i].name, name) == 0)
            return &devices[i];
    return NULL;
}
