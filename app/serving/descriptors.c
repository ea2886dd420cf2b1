#include "app/serving/descriptors.h"

#include <sys/resource.h>

#define RESERVE 256

uint32_t serving_descriptors(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur > UINT32_MAX)
        return UINT32_MAX;
    return files.rlim_cur > RESERVE ? (uint32_t)files.rlim_cur - RESERVE : 0;
}

void serving_allow_descriptors(uint32_t n)
{
    struct rlimit files;
    const rlim_t wanted = (rlim_t)n + RESERVE;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted)
        return;
    files.rlim_cur = wanted < files.rlim_max ? wanted : files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}
