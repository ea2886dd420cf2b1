#include "tools/doctor/machine.h"

#include "base/host_memory.h"
#include "kernels/backend.h"
#include "kernels/host/cpu_quota.h"
#include "kernels/host/placement.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The first line of a file that begins with `key`, without the key and separators; "" if there is none. */
static void read_line(const char *path, const char *key, char *out, size_t n_bytes)
{
    char line[256];
    FILE *file = fopen(path, "re");
    out[0] = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        const char *at = line + strlen(key);
        at += strspn(at, " \t:");
        snprintf(out, n_bytes, "%.*s", (int)strcspn(at, "\n"), at);
        break;
    }
    if (file)
        fclose(file);
}

static void look_at_cpus(struct machine *m)
{
    struct utsname system;
    cpu_set_t allowed;
    struct k_placement *placement;
    struct quire_error err;
    read_line("/proc/cpuinfo", "model name", m->cpu, sizeof m->cpu);
    if (uname(&system) == 0)
        snprintf(m->system, sizeof m->system, "%.30s %.80s, %.30s", system.sysname, system.release, system.machine);
    while (m->n_sets < MACHINE_MAX_SETS && k_instruction_set_at(m->n_sets, &m->sets[m->n_sets]))
        m->n_sets++;
    long n_online = sysconf(_SC_NPROCESSORS_ONLN);
    m->n_online = n_online > 0 ? (uint32_t)n_online : 1;
    /* A mask of more than 1,024 CPUs does not fit and is an error; all CPUs count then. */
    m->n_allowed = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? (uint32_t)CPU_COUNT(&allowed) : m->n_online;
    m->quota = cpu_quota("");
    read_line("/sys/devices/system/node/online", "", m->nodes, sizeof m->nodes);
    if (k_placement_create(0, "auto", &placement, &err) == QUIRE_OK) {
        m->n_threads = k_placement_n_threads(placement);
        snprintf(m->placement, sizeof m->placement, "%s", k_placement_text(placement));
        k_placement_destroy(placement);
    } else {
        m->n_threads = k_default_threads();
        snprintf(m->placement, sizeof m->placement, "%.190s", err.text);
    }
}

static uint64_t limit_of(rlim_t limit)
{
    return limit == RLIM_INFINITY ? MACHINE_NO_LIMIT : (uint64_t)limit;
}

static void look_at_memory(struct machine *m)
{
    char text[128];
    uint64_t value;
    struct rlimit limit;
    read_line("/proc/meminfo", "MemTotal", text, sizeof text);
    m->memory_bytes = sscanf(text, "%" SCNu64, &value) == 1 ? value * 1024 : 0;
    m->free_bytes = host_memory_available();
    read_line("/sys/fs/cgroup/memory.max", "", text, sizeof text);
    m->limit_bytes = sscanf(text, "%" SCNu64, &value) == 1 ? value : MACHINE_NO_LIMIT;
    m->files_now = m->files_most = m->locked_bytes = MACHINE_NO_LIMIT;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        m->files_now = limit_of(limit.rlim_cur);
        m->files_most = limit_of(limit.rlim_max);
    }
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
        m->locked_bytes = limit_of(limit.rlim_cur);
    /* "always [madvise] never" */
    read_line("/sys/kernel/mm/transparent_hugepage/enabled", "", text, sizeof text);
    const char *chosen = strchr(text, '[');
    if (chosen)
        snprintf(m->huge_pages, sizeof m->huge_pages, "%.*s", (int)strcspn(chosen + 1, "]"), chosen + 1);
}

static void look_at_gpu(struct machine *m)
{
    const struct k_backend_options options = {
        .device = "cuda", .form = K_FORM_AUTO, .weight_format = k_format_of(K_BF16), .n_threads = 1};
    struct k_backend *backend;
    const char *why;
    struct quire_error err;
    m->has_gpu = k_backend_open(&options, &backend, &why, &err) == QUIRE_OK;
    if (m->has_gpu) {
        snprintf(m->gpu, sizeof m->gpu, "%s", backend->description);
        backend->ops->close(backend);
    } else {
        const char *after = strncmp(err.text, "device cuda: ", 13) == 0 ? err.text + 13 : err.text;
        snprintf(m->gpu, sizeof m->gpu, "%s", after);
    }
    read_line("/proc/driver/nvidia/version", "NVRM version", m->driver, sizeof m->driver);
}

void machine_look(struct machine *out)
{
    memset(out, 0, sizeof *out);
    look_at_cpus(out);
    look_at_memory(out);
    look_at_gpu(out);
}
