/* Loads and stores integers in little-endian byte order: for frames, recordings and data that is hashed. Pure; any
 * thread. The caller has checked that the bytes exist.
 *
 * The code lists each byte so that it compiles to one move on a little-endian machine. A loop over the bytes took as
 * long as hashing them.
 */
#ifndef QUIRE_BASE_ENCODING_LITTLE_ENDIAN_H
#define QUIRE_BASE_ENCODING_LITTLE_ENDIAN_H

#include <stdint.h>

static inline void le_store_u16(void *to, uint32_t v)
{
    uint8_t *p = to;
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
static inline void le_store_u32(void *to, uint32_t v)
{
    uint8_t *p = to;
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}
static inline void le_store_u64(void *to, uint64_t v)
{
    uint8_t *p = to;
    le_store_u32(p, (uint32_t)v);
    le_store_u32(p + 4, (uint32_t)(v >> 32));
}

static inline uint16_t le_load_u16(const void *from)
{
    const uint8_t *p = from;
    return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t le_load_u32(const void *from)
{
    const uint8_t *p = from;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t le_load_u64(const void *from)
{
    const uint8_t *p = from;
    return le_load_u32(p) | (uint64_t)le_load_u32(p + 4) << 32;
}

#endif
