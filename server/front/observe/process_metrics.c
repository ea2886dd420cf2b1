#include "server/front/observe/process_metrics.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void put(struct buffer *o, const char *name, const char *type, const char *help, double value)
{
    char text[400];
    snprintf(text, sizeof text, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, type, name, value);
    json_out_raw(o, text);
}

/* Finds the number at the beginning of the line that begins with key. */
static bool find_number(const char *path, const char *key, double *out)
{
    char line[256];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        found = strncmp(line, key, strlen(key)) == 0;
        if (found)
            *out = strtod(line + strlen(key), NULL);
    }
    if (file)
        fclose(file);
    return found;
}

/* proc(5) numbers the fields of /proc/self/stat from 1; the second is in parentheses and may contain any character. */
#define STAT_UTIME 14
#define STAT_STIME 15
#define STAT_START 22
#define STAT_VSIZE 23
#define STAT_RSS 24

static bool read_stat(double out[STAT_RSS + 1])
{
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    if (!file)
        return false;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    char *at = strrchr(text, ')');
    if (!at || at[1] == '\0')
        return false;
    at += 3; /* ") S": the third field is a letter */
    for (int field = 4; field <= STAT_RSS; field++) {
        char *end;
        out[field] = strtod(at, &end);
        if (end == at)
            return false;
        at = end;
    }
    return true;
}

static bool count_fds(double *out)
{
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return false;
    double n = -1; /* excludes the directory's own descriptor */
    for (const struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    *out = n;
    return true;
}

void process_metrics_text(struct buffer *o)
{
    double stat[STAT_RSS + 1], booted, fds;
    double ticks = (double)sysconf(_SC_CLK_TCK);
    struct rlimit files;
    if (read_stat(stat)) {
        put(o, "process_cpu_seconds_total", "counter", "User and system time of the process.",
            (stat[STAT_UTIME] + stat[STAT_STIME]) / ticks);
        put(o, "process_resident_memory_bytes", "gauge", "Memory that is resident.",
            stat[STAT_RSS] * (double)sysconf(_SC_PAGESIZE));
        put(o, "process_virtual_memory_bytes", "gauge", "Virtual memory.", stat[STAT_VSIZE]);
        if (find_number("/proc/stat", "btime ", &booted))
            put(o, "process_start_time_seconds", "gauge", "Start of the process, in seconds since the epoch.",
                booted + stat[STAT_START] / ticks);
    }
    if (count_fds(&fds))
        put(o, "process_open_fds", "gauge", "Open file descriptors.", fds);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        put(o, "process_max_fds", "gauge", "File descriptors that may be open.", (double)files.rlim_cur);
}
