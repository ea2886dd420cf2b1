#include "kernels/host/cpu_quota.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 4096

static bool read_line(const char *path, char *out, int n)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool ok = fgets(out, n, file) != NULL;
    fclose(file);
    return ok;
}

static uint32_t whole_cpus(long long quota_us, long long period_us)
{
    if (quota_us <= 0 || period_us <= 0)
        return 0;
    long long n = quota_us / period_us;
    return n < 1 ? 1 : n > 1 << 20 ? 1 << 20 : (uint32_t)n;
}

/* Returns the quota of one directory, from the files of either cgroup version; 0 if it sets no quota. */
static uint32_t quota_of(const char *dir)
{
    char path[PATH_BYTES + 32], line[128];
    long long quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (read_line(path, line, sizeof line)) /* "max 100000" or "250000 100000" */
        return sscanf(line, "%lld %lld", &quota, &period) == 2 ? whole_cpus(quota, period) : 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
    if (!read_line(path, line, sizeof line) || sscanf(line, "%lld", &quota) != 1)
        return 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    if (!read_line(path, line, sizeof line) || sscanf(line, "%lld", &period) != 1)
        return 0;
    return whole_cpus(quota, period); /* -1: no limit */
}

/* Returns the smallest quota of `group` below `mount` and of every directory above it. In a container the path may be
 * the host's and not exist here; then only the directories above it count, up to mount. */
static uint32_t least_quota(const char *mount, const char *group)
{
    char dir[PATH_BYTES];
    size_t n_mount = strlen(mount);
    if ((size_t)snprintf(dir, sizeof dir, "%s%s", mount, group) >= sizeof dir)
        dir[n_mount] = '\0';
    uint32_t least = 0;
    for (;;) {
        uint32_t n = quota_of(dir);
        if (n > 0 && (least == 0 || n < least))
            least = n;
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < n_mount)
            return least;
        *slash = '\0';
    }
}

static bool has_cpu_controller(char *controllers)
{
    char *rest = NULL;
    for (char *c = strtok_r(controllers, ",", &rest); c; c = strtok_r(NULL, ",", &rest))
        if (strcmp(c, "cpu") == 0)
            return true;
    return false;
}

uint32_t cpu_quota(const char *root)
{
    char path[PATH_BYTES], line[PATH_BYTES], mount[PATH_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    uint32_t least = 0;
    while (fgets(line, sizeof line, file)) { /* "4:cpu,cpuacct:/group" (v1) or "0::/group" (v2) */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *controllers++ = '\0';
        *group++ = '\0';
        if (*controllers == '\0')
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
        else if (has_cpu_controller(controllers)) /* other controllers in the same mount link here */
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/cpu", root);
        else
            continue;
        uint32_t n = least_quota(mount, group);
        if (n > 0 && (least == 0 || n < least))
            least = n;
    }
    fclose(file);
    return least;
}
