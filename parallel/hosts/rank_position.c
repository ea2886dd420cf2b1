#include "parallel/hosts/rank_position.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int rank_transport_parse(const char *name, enum rank_transport *out, struct quire_error *err)
{
    static const char *const names[] = {
        [TRANSPORT_AUTO] = "auto", [TRANSPORT_SHM] = "shm", [TRANSPORT_TCP] = "tcp", [TRANSPORT_MPI] = "mpi"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum rank_transport)i;
            return QUIRE_OK;
        }
    return quire_fail(err, QUIRE_INVALID, "must be auto, shm, tcp or mpi, got \"%.40s\"", name);
}

/* ---- variables ---- */

/* A variable that is empty counts as unset. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static int number(const char *name, uint32_t max, uint32_t *out, struct quire_error *err)
{
    const char *value = variable(name);
    const size_t n = value ? strlen(value) : 0;
    if (!value || n > 7 || strspn(value, "0123456789") != n || strtoul(value, NULL, 10) > max)
        return quire_fail(err, QUIRE_INVALID, "%s: \"%.40s\" is not a number up to %u", name, value ? value : "", max);
    *out = (uint32_t)strtoul(value, NULL, 10);
    return QUIRE_OK;
}

/* The leading number of "2" and of Slurm's "2(x3)". "2,1" has none: the hosts differ. */
static int local_number(const char *name, uint32_t *out, struct quire_error *err)
{
    const char *value = variable(name);
    const size_t n = strspn(value, "0123456789");
    if (n == 0 || n > 5 || (value[n] && value[n] != '(' && value[n] != ','))
        return quire_fail(err, QUIRE_INVALID, "%s: \"%.40s\" is not a number of processes", name, value);
    if (value[n] != ',')
        *out = (uint32_t)strtoul(value, NULL, 10);
    return QUIRE_OK;
}

static int set_address(struct position *out, const char *name, const char *value, size_t n, struct quire_error *err)
{
    bool is_name = n > 0 && n < sizeof out->address;
    for (size_t i = 0; i < n && is_name; i++)
        is_name = isalnum((unsigned char)value[i]) || strchr("-._:%", value[i]);
    if (!is_name)
        return quire_fail(err, QUIRE_INVALID, "%s: \"%.80s\" is not the name or address of a host", name, value);
    memcpy(out->address, value, n);
    out->address[n] = 0;
    return QUIRE_OK;
}

/* ---- launchers ---- */

static const struct launcher {
    const char *name;
    const char *needs[2]; /* this launcher is used if all of them are set */
    const char *rank, *size, *local; /* size, local: NULL if the launcher does not set it */
    bool is_mpi, is_mpich;
} launchers[] = {
    {"torchrun", {"RANK", "WORLD_SIZE"}, "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", false, false},
    {"Open MPI",
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     true,
     false},
    {"PMI", {"PMI_RANK", "PMI_SIZE"}, "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", true, true},
    /* Slurm's PMIx plugin sets the rank here and the number below. */
    {"PMIx", {"PMIX_RANK", NULL}, "PMIX_RANK", NULL, NULL, true, false},
    /* A batch script has SLURM_PROCID, too, but no step. */
    {"Slurm",
     {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_STEP_TASKS_PER_NODE",
     false,
     false},
    {"LeaderWorkerSet",
     {"LWS_WORKER_INDEX", "LWS_GROUP_SIZE"},
     "LWS_WORKER_INDEX",
     "LWS_GROUP_SIZE",
     NULL,
     false,
     false},
};
#define N_LAUNCHERS (sizeof launchers / sizeof launchers[0])

/* A launcher that started a single process leaves the other ranks to this process: srun -n 1, or torchrun with one
 * process. */
static const struct launcher *find_launcher(void)
{
    for (size_t i = 0; i < N_LAUNCHERS; i++) {
        const struct launcher *l = &launchers[i];
        if (variable(l->needs[0]) && (!l->needs[1] || variable(l->needs[1])))
            return l->size && strcmp(variable(l->size), "1") == 0 ? NULL : l;
    }
    return NULL;
}

static int take_launcher(const struct launcher *l, uint32_t n_ranks, struct position *out, struct quire_error *err)
{
    out->launcher = l->name;
    out->is_mpi = l->is_mpi;
    out->is_mpich = l->is_mpich;
    out->size = n_ranks;
    int status = number(l->rank, 65535, &out->rank, err);
    if (status == QUIRE_OK && l->size)
        status = number(l->size, 65535, &out->size, err);
    const char *local = l->local && variable(l->local) ? l->local
                                                       : "SLURM_STEP_TASKS_PER_NODE"; /* of srun, also with PMI */
    if (status == QUIRE_OK && variable(local))
        status = local_number(local, &out->n_local, err);
    if (status == QUIRE_OK && out->size != n_ranks)
        status = quire_fail(err, QUIRE_INVALID,
                            "%s: %u processes were started, but the engine has %u ranks (--tensor-parallel-size "
                            "times --pipeline-parallel-size); --rank-transport shm starts the ranks itself",
                            l->size, out->size, n_ranks);
    if (status == QUIRE_OK && out->rank >= out->size)
        status = quire_fail(err, QUIRE_INVALID, "%s: rank %u does not exist; there are %u ranks", l->rank, out->rank,
                            out->size);
    return status;
}

/* ---- address of rank 0 ---- */

/* The first of "a,b", "node[03-07,09],x" (node03) or "node[3,5]-ib" (node3-ib). Names with more brackets need
 * MASTER_ADDR. */
static int first_host(const char *name, const char *list, struct position *out, struct quire_error *err)
{
    char host[RANK_POSITION_ADDRESS_BYTES];
    const size_t n_head = strcspn(list, "[,");
    const char *at = list + n_head;
    size_t n_number = 0, n_tail = 0;
    const char *number_at = "", *tail = "";
    if (*at == '[') {
        number_at = at + 1;
        n_number = strspn(number_at, "0123456789");
        const size_t n_inside = strcspn(number_at, "]");
        tail = number_at + n_inside + (number_at[n_inside] == ']');
        n_tail = strcspn(tail, ",");
        if (n_number == 0 || number_at[n_inside] != ']' || memchr(tail, '[', n_tail))
            return quire_fail(err, QUIRE_INVALID, "%s: the first host cannot be read from \"%.80s\": set MASTER_ADDR",
                              name, list);
    }
    int n = snprintf(host, sizeof host, "%.*s%.*s%.*s", (int)(n_head < 200 ? n_head : 200), list,
                     (int)(n_number < 20 ? n_number : 20), number_at, (int)(n_tail < 30 ? n_tail : 30), tail);
    return set_address(out, name, host, (size_t)n, err);
}

static int find_address(const struct rank_position_flags *flags, struct position *out, struct quire_error *err)
{
    static const char *const lists[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"};
    if (flags->master_addr)
        return set_address(out, "--master-addr", flags->master_addr, strlen(flags->master_addr), err);
    if (variable("MASTER_ADDR"))
        return set_address(out, "MASTER_ADDR", variable("MASTER_ADDR"), strlen(variable("MASTER_ADDR")), err);
    if (variable("LWS_LEADER_ADDRESS"))
        return set_address(out, "LWS_LEADER_ADDRESS", variable("LWS_LEADER_ADDRESS"),
                           strlen(variable("LWS_LEADER_ADDRESS")), err);
    for (size_t i = 0; i < 2 && !out->is_mpi; i++)
        if (variable(lists[i]))
            return first_host(lists[i], variable(lists[i]), out, err);
    if (out->n_local == out->size)
        return set_address(out, "localhost", "127.0.0.1", strlen("127.0.0.1"), err);
    return QUIRE_OK;
}

/* torchrun's own store listens at MASTER_PORT on rank 0's host; Quire uses the next port. */
static int find_port(const struct rank_position_flags *flags, struct position *out, struct quire_error *err)
{
    uint32_t port = RANK_POSITION_PORT;
    int status = QUIRE_OK;
    const char *store = variable("TORCHELASTIC_USE_AGENT_STORE");
    if (flags->master_port)
        port = flags->master_port;
    else if (variable("MASTER_PORT"))
        status = number("MASTER_PORT", 65534, &port, err);
    if (status == QUIRE_OK && port == 0)
        status = quire_fail(err, QUIRE_INVALID, "MASTER_PORT: must not be 0, because other ranks must know the port");
    if (!flags->master_port && variable("MASTER_PORT") && store && strcmp(store, "True") == 0)
        port++;
    out->port = (uint16_t)port;
    return status;
}

/* ---- public functions ---- */

static int take_flags(const struct rank_position_flags *flags, uint32_t n_ranks, struct position *out,
                      struct quire_error *err)
{
    if (flags->nnodes != n_ranks)
        return quire_fail(
            err, QUIRE_INVALID,
            "--nnodes %u: the engine has %u ranks, and each node has one; to start several on a node, set RANK, "
            "WORLD_SIZE and MASTER_ADDR in their environment",
            flags->nnodes, n_ranks);
    if (flags->node_rank >= flags->nnodes)
        return quire_fail(err, QUIRE_INVALID, "--node-rank %u: with --nnodes %u, it must be 0 to %u", flags->node_rank,
                          flags->nnodes, flags->nnodes - 1);
    out->launcher = "--nnodes";
    out->rank = flags->node_rank;
    out->size = flags->nnodes;
    return QUIRE_OK;
}

int rank_position_find(const struct rank_position_flags *flags, uint32_t n_ranks, struct position *out,
                       struct quire_error *err)
{
    const struct launcher *l = find_launcher();
    const bool has_flags = flags->nnodes || flags->node_rank || flags->master_addr || flags->master_port;
    int status = QUIRE_OK;
    *out = (struct position){.size = n_ranks, .n_local = 1};
    if (flags->transport == TRANSPORT_SHM && has_flags)
        return quire_fail(
            err, QUIRE_INVALID,
            "--rank-transport shm is for ranks of one host: leave out --nnodes, --node-rank, --master-addr and "
            "--master-port");
    if (n_ranks > 1 && flags->nnodes)
        status = take_flags(flags, n_ranks, out, err);
    else if (n_ranks > 1 && flags->transport != TRANSPORT_SHM && l)
        status = take_launcher(l, n_ranks, out, err);
    else if (has_flags)
        return quire_fail(err, QUIRE_INVALID,
                          n_ranks > 1
                              ? "--master-addr, --master-port and --node-rank need --nnodes"
                              : "--nnodes, --node-rank, --master-addr and --master-port need --tensor-parallel-size "
                                "or --pipeline-parallel-size");
    else if (n_ranks > 1 && flags->transport > TRANSPORT_SHM)
        return quire_fail(
            err, QUIRE_INVALID,
            "--rank-transport: %s needs ranks started by mpirun, srun, torchrun, a LeaderWorkerSet or --nnodes, but "
            "the environment has no launcher's variables",
            flags->transport == TRANSPORT_MPI ? "mpi" : "tcp");
    if (status != QUIRE_OK || !out->launcher) {
        out->n_local = out->launcher ? out->n_local : n_ranks;
        return status;
    }
    status = find_address(flags, out, err);
    if (status == QUIRE_OK)
        status = find_port(flags, out, err);
    if (status == QUIRE_OK && !out->address[0] && (!out->is_mpi || flags->transport == TRANSPORT_TCP))
        status = quire_fail(err, QUIRE_INVALID,
                            "%s does not set the address of rank 0: give --master-addr, or set MASTER_ADDR",
                            out->launcher);
    return status;
}
