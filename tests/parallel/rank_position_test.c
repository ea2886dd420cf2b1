/* The rank of a process, from the environments of launchers, and invalid environments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "parallel/hosts/rank_position.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_USE_AGENT_STORE",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "MPI_LOCALNRANKS",
                                    "PMIX_RANK",
                                    "SLURM_STEP_TASKS_PER_NODE",
                                    "SLURM_PROCID",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_STEP_NODELIST",
                                    "SLURM_JOB_NODELIST",
                                    "LWS_LEADER_ADDRESS",
                                    "LWS_GROUP_SIZE",
                                    "LWS_WORKER_INDEX"};

/* "NAME=VALUE NAME=VALUE", with all other such variables unset. */
static void set_environment(const char *text)
{
    char copy[512], *rest = copy;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    strcpy(copy, text);
    for (char *pair; (pair = strsep(&rest, " "));) {
        char *value = strchr(pair, '=');
        if (!value)
            continue;
        *value = 0;
        setenv(pair, value + 1, 1);
    }
}

static void launchers_say_which_rank_this_is(void **state)
{
    (void)state;
    static const struct {
        const char *environment, *launcher;
        uint32_t rank, n_local;
        const char *address;
        uint16_t port;
    } rows[] = {
        {"RANK=3 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node7 MASTER_PORT=29400", "torchrun", 3, 2, "node7",
         29400},
        {"RANK=0 WORLD_SIZE=4 MASTER_ADDR=10.0.0.1 MASTER_PORT=1234 TORCHELASTIC_USE_AGENT_STORE=True", "torchrun", 0,
         1, "10.0.0.1", 1235},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_RANK=1", "Open MPI", 1, 4,
         "127.0.0.1", 29501},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 SLURM_JOB_NODELIST=n[1-2]",
         "Open MPI", 1, 2, "", 29501},
        {"PMI_RANK=2 PMI_SIZE=4 MPI_LOCALNRANKS=1", "PMI", 2, 1, "", 29501},
        {"PMIX_RANK=2 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4", "PMIx", 2, 1, "", 29501},
        {"PMIX_RANK=2 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2)", "PMIx", 2, 2, "", 29501},
        {"SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NODELIST=node[03-07,09],x", "Slurm", 2, 1, "node03", 29501},
        {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_NODELIST=a[3,5]-ib,b1", "Slurm", 0, 1, "a3-ib", 29501},
        {"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_NODELIST=alpha,beta", "Slurm", 1, 1, "alpha", 29501},
        {"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_JOB_NODELIST=a[1-2]", "Slurm", 1,
         2, "a1", 29501},
        {"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=3,1 SLURM_JOB_NODELIST=a[1-2]", "Slurm", 1, 1,
         "a1", 29501},
        {"LWS_WORKER_INDEX=3 LWS_GROUP_SIZE=4 LWS_LEADER_ADDRESS=quire-0.quire.default", "LeaderWorkerSet", 3, 1,
         "quire-0.quire.default", 29501},
        {"SLURM_PROCID=0 SLURM_JOB_NODELIST=alpha,beta", NULL, 0, 4, "", 0}, /* a batch script, without srun */
        {"RANK= WORLD_SIZE=4", NULL, 0, 4, "", 0},
        {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NODELIST=a", NULL, 0, 4, "", 0}, /* srun -n 1 */
        {"", NULL, 0, 4, "", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct rank_position_flags none = {.transport = TRANSPORT_AUTO};
        struct position position;
        struct quire_error err = {.text = ""};
        set_environment(rows[i].environment);
        int status = rank_position_find(&none, 4, &position, &err);
        if (status != QUIRE_OK)
            print_error("%s: %s\n", rows[i].environment, err.text);
        assert_int_equal(status, QUIRE_OK);
        assert_true(!position.launcher == !rows[i].launcher);
        if (position.launcher)
            assert_string_equal(position.launcher, rows[i].launcher);
        assert_int_equal(position.rank, rows[i].rank);
        assert_int_equal(position.n_local, rows[i].n_local);
        assert_string_equal(position.address, rows[i].address);
        assert_int_equal(position.port, rows[i].port);
        assert_int_equal(position.size, 4);
        /* A single process is not a rank, whatever started it. */
        assert_int_equal(rank_position_find(&none, 1, &position, &err), QUIRE_OK);
        assert_null(position.launcher);
        /* With shm, an engine starts its ranks itself. */
        const struct rank_position_flags shm = {.transport = TRANSPORT_SHM};
        assert_int_equal(rank_position_find(&shm, 4, &position, &err), QUIRE_OK);
        assert_null(position.launcher);
    }
}

static void what_makes_no_sense_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *environment, *says;
        struct rank_position_flags flags;
    } rows[] = {
        {"RANK=x WORLD_SIZE=4", "RANK: \"x\" is not a number", {0}},
        {"RANK=-1 WORLD_SIZE=4", "RANK: \"-1\" is not a number", {0}},
        {"RANK=99999999 WORLD_SIZE=4", "RANK: \"99999999\" is not a number", {0}},
        {"RANK=4 WORLD_SIZE=4 MASTER_ADDR=a", "RANK: rank 4 does not exist; there are 4 ranks", {0}},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", "WORLD_SIZE: 2 processes were started, but the engine has 4 ranks", {0}},
        {"RANK=0 WORLD_SIZE=4", "torchrun does not set the address of rank 0", {0}},
        {"RANK=0 WORLD_SIZE=4 MASTER_ADDR=a;b", "MASTER_ADDR: \"a;b\" is not the name", {0}},
        {"RANK=0 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=0", "MASTER_PORT: must not be 0", {0}},
        {"RANK=0 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=70000", "MASTER_PORT: \"70000\" is not a number", {0}},
        {"PMI_RANK=0 PMI_SIZE=4", "PMI does not set the address of rank 0", {.transport = TRANSPORT_TCP}},
        {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_NODELIST=a[1-2]b[3-4]",
         "SLURM_JOB_NODELIST: the first host",
         {0}},
        {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_NODELIST=a[x]", "SLURM_JOB_NODELIST: the first host", {0}},
        {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_NODELIST=a[1", "SLURM_JOB_NODELIST: the first host", {0}},
        {"LWS_WORKER_INDEX=0 LWS_GROUP_SIZE=4", "LeaderWorkerSet does not set the address of rank 0", {0}},
        {"", "--nnodes 3: the engine has 4 ranks", {.nnodes = 3}},
        {"", "--node-rank 4: with --nnodes 4, it must be 0 to 3", {.nnodes = 4, .node_rank = 4}},
        {"", "--nnodes does not set the address of rank 0", {.nnodes = 4}},
        {"", "need --nnodes", {.master_addr = "a"}},
        {"", "--rank-transport: tcp needs ranks started by", {.transport = TRANSPORT_TCP}},
        {"", "--rank-transport shm is for ranks of one host", {.transport = TRANSPORT_SHM, .nnodes = 4}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct position position;
        struct quire_error err = {.text = ""};
        set_environment(rows[i].environment);
        int status = rank_position_find(&rows[i].flags, 4, &position, &err);
        if (status != QUIRE_INVALID || !strstr(err.text, rows[i].says))
            print_error("%s: %d, \"%s\", not \"%s\"\n", rows[i].environment, status, err.text, rows[i].says);
        assert_int_equal(status, QUIRE_INVALID);
        assert_non_null(strstr(err.text, rows[i].says));
    }
}

static void flags_come_first(void **state)
{
    (void)state;
    struct position position;
    struct quire_error err;
    set_environment("RANK=0 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=5");
    const struct rank_position_flags all = {.nnodes = 4, .node_rank = 2, .master_addr = "b", .master_port = 6};
    assert_int_equal(rank_position_find(&all, 4, &position, &err), QUIRE_OK);
    assert_int_equal(position.rank, 2);
    assert_string_equal(position.address, "b");
    assert_int_equal(position.port, 6);
    const struct rank_position_flags where = {.master_addr = "c"};
    assert_int_equal(rank_position_find(&where, 4, &position, &err), QUIRE_OK);
    assert_string_equal(position.address, "c");
    assert_int_equal(position.port, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers_say_which_rank_this_is),
        cmocka_unit_test(what_makes_no_sense_is_named),
        cmocka_unit_test(flags_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
