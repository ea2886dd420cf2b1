#include "kernels/host/placement.h"

#include "kernels/host/cpu_quota.h"
#include "kernels/open.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hwloc.h>

/* Smaller areas fit a core's cache and share the allocator's pages with others. */
#define MIN_PLACED_BYTES (1u << 20)
#define PROBE_BYTES 4096u

struct k_placement {
    hwloc_topology_t topology;
    uint32_t n_threads;
    bool is_pinned;
    uint32_t cpus[K_MAX_THREADS]; /* if pinned: the CPU of each thread */
    hwloc_bitmap_t nodes;         /* the nodes for memory; empty: the node of the first touch */
    char text[192];
};

/* The CPUs that this process may use, from which the placement is decided. */
struct machine {
    hwloc_bitmap_t allowed;
    uint32_t n_cpus;  /* in allowed */
    uint32_t n_cores; /* cores that have a CPU in allowed */
    uint32_t first_cpus[K_MAX_THREADS]; /* each core's first CPU, ordered by node and package */
};

/* ---- the machine ----------------------------------------------------------------------------- */

static int load_topology(hwloc_topology_t *out, struct quire_error *err)
{
    if (hwloc_topology_init(out) != 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "CPU topology: out of memory");
    /* Load only cores, the CPUs and NUMA nodes that hwloc always keeps, and the groups without which a node would seem
     * to contain every CPU. The x86 component would run on every CPU in turn to read data that sysfs has as well. 0.5
     * ms on 2 CPUs and 13 ms on a tree of 256; hwloc's defaults take 1.0 and 18 ms. */
    hwloc_topology_set_all_types_filter(*out, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(*out, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(*out, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    hwloc_topology_set_flags(*out, HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING | HWLOC_TOPOLOGY_FLAG_NO_DISTANCES |
                                       HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS | HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS);
    if (hwloc_topology_load(*out) != 0)
        return quire_fail(err, QUIRE_IO, "CPU topology: hwloc cannot read it: %m");
    return QUIRE_OK;
}

/* m->allowed must be allocated. */
static void look_at_machine(hwloc_topology_t t, struct machine *m)
{
    if (hwloc_get_cpubind(t, m->allowed, HWLOC_CPUBIND_THREAD) != 0)
        hwloc_bitmap_copy(m->allowed, hwloc_topology_get_allowed_cpuset(t));
    hwloc_bitmap_and(m->allowed, m->allowed, hwloc_topology_get_allowed_cpuset(t));
    m->n_cpus = (uint32_t)hwloc_bitmap_weight(m->allowed);
    /* Some virtual machines and kernels report no cores; then each CPU counts as a core. */
    bool has_cores = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE) > 0;
    hwloc_obj_t core = NULL;
    while ((core = hwloc_get_next_obj_by_type(t, has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU, core)) &&
           m->n_cores < K_MAX_THREADS) {
        int cpu = hwloc_bitmap_first(core->cpuset);
        while (cpu >= 0 && !hwloc_bitmap_isset(m->allowed, (unsigned)cpu))
            cpu = hwloc_bitmap_next(core->cpuset, cpu);
        if (cpu >= 0)
            m->first_cpus[m->n_cores++] = (uint32_t)cpu;
    }
}

/* ---- the option cpu_bind --------------------------------------------------------------------- */

static bool is_number(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads a number of at most 6 digits at *at and moves past it. */
static bool read_cpu(const char **at, uint32_t *out)
{
    *out = 0;
    const char *begin = *at;
    for (; is_number(**at) && *at - begin < 6; ++*at)
        *out = *out * 10 + (uint32_t)(**at - '0');
    return *at > begin && !is_number(**at);
}

static int add_cpu(const struct machine *m, uint32_t cpu, uint32_t *cpus, uint32_t *n, struct quire_error *err)
{
    char allowed[128];
    if (!hwloc_bitmap_isset(m->allowed, cpu)) {
        hwloc_bitmap_list_snprintf(allowed, sizeof allowed, m->allowed);
        return quire_fail(err, QUIRE_INVALID, "cpu-bind: CPU %u is not available to this process; available: %s", cpu,
                          allowed);
    }
    for (uint32_t i = 0; i < *n; i++)
        if (cpus[i] == cpu)
            return quire_fail(err, QUIRE_INVALID, "cpu-bind: CPU %u is listed twice", cpu);
    if (*n == K_MAX_THREADS)
        return quire_fail(err, QUIRE_INVALID, "cpu-bind: at most %u CPUs can be listed", K_MAX_THREADS);
    cpus[(*n)++] = cpu;
    return QUIRE_OK;
}

/* Reads "0-3,8": the CPUs in this order. hwloc's reader is unsuitable: it sorts, and it allocates memory for any number
 * in the list. */
static int read_list(const struct machine *m, const char *list, uint32_t *cpus, uint32_t *n, struct quire_error *err)
{
    const char *at = list;
    *n = 0;
    for (;;) {
        uint32_t first, last;
        bool ok = read_cpu(&at, &first);
        last = first;
        if (ok && *at == '-') {
            at++;
            ok = read_cpu(&at, &last) && last >= first;
        }
        if (!ok || (*at != ',' && *at != '\0'))
            return quire_fail(err, QUIRE_INVALID, "cpu-bind: must be auto, none or CPUs as in 0-3,8; got '%.40s'",
                              list);
        for (uint32_t cpu = first; cpu <= last; cpu++) {
            int status = add_cpu(m, cpu, cpus, n, err);
            if (status != QUIRE_OK)
                return status;
        }
        if (*at++ == '\0')
            return QUIRE_OK;
    }
}

/* ---- the decision ---------------------------------------------------------------------------- */

/* Returns the NUMA node of a CPU. Of several nodes (fast memory in addition to normal memory) it returns the first,
 * which is the normal one. */
static hwloc_obj_t node_of(hwloc_topology_t t, uint32_t cpu)
{
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, node)))
        if (hwloc_bitmap_isset(node->cpuset, cpu))
            return node;
    return NULL;
}

/* Sets p->nodes to the nodes of n CPUs. */
static void collect_nodes(struct k_placement *p, const uint32_t *cpus, uint32_t n)
{
    hwloc_bitmap_zero(p->nodes);
    for (uint32_t i = 0; i < n; i++) {
        hwloc_obj_t node = node_of(p->topology, cpus[i]);
        if (node)
            hwloc_bitmap_set(p->nodes, node->os_index);
    }
}

static int place_list(struct k_placement *p, const struct machine *m, uint32_t n_threads, const char *list,
                      struct quire_error *err)
{
    int status = read_list(m, list, p->cpus, &p->n_threads, err);
    if (status != QUIRE_OK)
        return status;
    if (n_threads != 0 && n_threads != p->n_threads)
        return quire_fail(err, QUIRE_INVALID,
                          "cpu-bind: lists %u CPUs for %u threads: omit --threads, or list as "
                          "many",
                          p->n_threads, n_threads);
    p->is_pinned = true;
    collect_nodes(p, p->cpus, p->n_threads);
    return QUIRE_OK;
}

static void place_threads(struct k_placement *p, const struct machine *m, uint32_t n_threads, bool may_pin)
{
    uint32_t n_usable = m->n_cores > 0 ? m->n_cores : 1;
    uint32_t quota = hwloc_topology_is_thissystem(p->topology) ? cpu_quota("") : 0;
    if (quota > 0 && quota < n_usable)
        n_usable = quota;
    p->n_threads = n_threads ? n_threads : n_usable;
    collect_nodes(p, m->first_cpus, m->n_cores);
    bool may_choose_badly = hwloc_bitmap_weight(p->nodes) > 1 || m->n_cpus > m->n_cores;
    p->is_pinned = may_pin && may_choose_badly && p->n_threads > 1 && p->n_threads == m->n_cores &&
                   n_usable == m->n_cores;
    if (p->is_pinned)
        memcpy(p->cpus, m->first_cpus, p->n_threads * sizeof *p->cpus);
}

static hwloc_membind_policy_t memory_policy(const struct k_placement *p)
{
    return hwloc_bitmap_weight(p->nodes) > 1 ? HWLOC_MEMBIND_INTERLEAVE : HWLOC_MEMBIND_BIND;
}

/* Does not set a memory policy if there is only one choice, or if the system does not allow it, as in some
 * containers. */
static void decide_memory(struct k_placement *p)
{
    hwloc_topology_t t = p->topology;
    void *probe = NULL;
    if (hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE) > 1 && !hwloc_bitmap_iszero(p->nodes))
        probe = hwloc_alloc_membind(t, PROBE_BYTES, p->nodes, memory_policy(p),
                                    HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_STRICT);
    if (probe)
        hwloc_free(t, probe, PROBE_BYTES);
    else
        hwloc_bitmap_zero(p->nodes);
}

static int describe(struct k_placement *p, struct quire_error *err)
{
    char cpus[96] = "", nodes[32];
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (!set)
        return quire_fail(err, QUIRE_NO_MEMORY, "CPU topology: out of memory");
    for (uint32_t i = 0; p->is_pinned && i < p->n_threads; i++)
        hwloc_bitmap_set(set, p->cpus[i]);
    hwloc_bitmap_list_snprintf(cpus, sizeof cpus, set);
    hwloc_bitmap_free(set);
    hwloc_bitmap_list_snprintf(nodes, sizeof nodes, p->nodes);
    int n_nodes = hwloc_bitmap_weight(p->nodes);
    snprintf(p->text, sizeof p->text, "%u thread%s%s%s%s%s", p->n_threads, p->n_threads == 1 ? "" : "s",
             p->is_pinned ? " on CPU " : "", cpus,
             n_nodes > 1    ? ", memory interleaved over NUMA nodes "
             : n_nodes == 1 ? ", memory on NUMA node "
                            : "",
             n_nodes > 0 ? nodes : "");
    return QUIRE_OK;
}

static int decide(struct k_placement *p, uint32_t n_threads, const char *cpu_bind, struct quire_error *err)
{
    struct machine m = {.allowed = hwloc_bitmap_alloc()};
    p->nodes = hwloc_bitmap_alloc();
    int status = load_topology(&p->topology, err);
    if (status == QUIRE_OK && (!m.allowed || !p->nodes))
        status = quire_fail(err, QUIRE_NO_MEMORY, "CPU topology: out of memory");
    if (status == QUIRE_OK) {
        look_at_machine(p->topology, &m);
        bool is_auto = !cpu_bind || strcmp(cpu_bind, "auto") == 0;
        if (is_auto || strcmp(cpu_bind, "none") == 0)
            place_threads(p, &m, n_threads, is_auto);
        else
            status = place_list(p, &m, n_threads, cpu_bind, err);
    }
    hwloc_bitmap_free(m.allowed);
    if (status != QUIRE_OK)
        return status;
    decide_memory(p);
    return describe(p, err);
}

int k_placement_create(uint32_t n_threads, const char *cpu_bind, struct k_placement **out, struct quire_error *err)
{
    *out = NULL;
    if (n_threads > K_MAX_THREADS)
        return quire_fail(err, QUIRE_INVALID, "threads: must be 1 to %u, got %u", K_MAX_THREADS, n_threads);
    struct k_placement *p = calloc(1, sizeof *p);
    if (!p)
        return quire_fail(err, QUIRE_NO_MEMORY, "CPU topology: out of memory");
    int status = decide(p, n_threads, cpu_bind, err);
    if (status != QUIRE_OK) {
        k_placement_destroy(p);
        return status;
    }
    *out = p;
    return QUIRE_OK;
}

void k_placement_destroy(struct k_placement *p)
{
    if (!p)
        return;
    if (p->topology)
        hwloc_topology_destroy(p->topology);
    hwloc_bitmap_free(p->nodes);
    free(p);
}

/* ---- what was decided ------------------------------------------------------------------------ */

uint32_t k_placement_n_threads(const struct k_placement *p)
{
    return p->n_threads;
}

int32_t k_placement_cpu(const struct k_placement *p, uint32_t thread)
{
    return p->is_pinned ? (int32_t)p->cpus[thread] : -1;
}

const char *k_placement_text(const struct k_placement *p)
{
    return p->text;
}

void k_placement_pin(const struct k_placement *p, uint32_t thread)
{
    hwloc_bitmap_t set = p->is_pinned ? hwloc_bitmap_alloc() : NULL;
    if (!set)
        return;
    hwloc_bitmap_set(set, p->cpus[thread]);
    (void)hwloc_set_cpubind(p->topology, set, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(set);
}

void k_placement_memory(const struct k_placement *p, void *data, uint64_t bytes)
{
    if (bytes >= MIN_PLACED_BYTES && !hwloc_bitmap_iszero(p->nodes))
        (void)hwloc_set_area_membind(p->topology, data, (size_t)bytes, p->nodes, memory_policy(p),
                                     HWLOC_MEMBIND_BYNODESET);
}

int k_backend_threads(const struct k_backend_options *options, uint32_t *out, struct quire_error *err)
{
    struct k_placement *p;
    int status = k_placement_create(options->n_threads, options->cpu_bind, &p, err);
    if (status != QUIRE_OK)
        return status;
    *out = k_placement_n_threads(p);
    k_placement_destroy(p);
    return QUIRE_OK;
}

uint32_t k_default_threads(void)
{
    uint32_t n = 1;
    const struct k_backend_options options = {0};
    (void)k_backend_threads(&options, &n, NULL); /* one thread on a machine that cannot be read */
    return n;
}
