#include "base/host_memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

/* Reads a file that holds one number. Returns false if the file is missing or contains "max". */
static bool read_number(const char *path, uint64_t *out)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool ok = fscanf(file, "%" SCNu64, out) == 1;
    fclose(file);
    return ok;
}

static uint64_t machine_available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    uint64_t kib = 0;
    if (file) {
        char line[128];
        while (fgets(line, sizeof line, file))
            if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
                break;
        fclose(file);
    }
    if (kib)
        return kib * 1024;
    long pages = sysconf(_SC_AVPHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes : 0;
}

uint64_t host_memory_available(void)
{
    uint64_t available = machine_available();
    uint64_t limit, used;
    if (read_number("/sys/fs/cgroup/memory.max", &limit) && read_number("/sys/fs/cgroup/memory.current", &used)) {
        uint64_t left = limit > used ? limit - used : 0;
        if (left < available)
            available = left;
    }
    return available;
}
