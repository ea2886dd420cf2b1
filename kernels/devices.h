/* GPUs whose memory can be planned without owning one: a constant table. Any thread. */
#ifndef QUIRE_KERNELS_DEVICES_H
#define QUIRE_KERNELS_DEVICES_H

#include <stdint.h>

struct k_planner; /* kernels/planner.h */

struct k_device {
    const char *name; /* "h200", as in `quire plan --device` */
    const struct k_planner *planner;
    const char *title; /* "NVIDIA H200 SXM" */
    uint64_t memory_bytes; /* as the driver reports it */
    double bandwidth; /* of the data sheet, bytes a second */
    double mma_flops; /* 16-bit products by mma.sync a second, from the data sheet */
};
/* Names are compared without case, spaces, '-' and '_', and without "rtx". Returns NULL if no such device exists. k_device_at(i) returns NULL past the last. */
const struct k_device *k_device_find(const char *name);
const struct k_device *k_device_at(uint32_t i);

#endif
