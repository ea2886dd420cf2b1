/* A rank of an engine with several ranks. Not a command for users: rank 0 starts it, or a launcher does, with rank 0's
 * command. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/flags/engine_flags.h"
#include "app/models/cache.h"
#include "engine/engine.h"

#include <signal.h>
#include <unistd.h>

static bool is_in_group;

static void on_joined(void)
{
    is_in_group = true;
}

/* Rank 0 knows the reason of the group's end, whatever it is, and reports it once for all ranks. */
int command_rank(void)
{
    struct quire_error err;
    /* A terminal's Ctrl-C reaches all processes at once, and so may its end or a service manager's reload. Rank 0
     * handles them and ends the other ranks after its requests. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    if (engine_work(NULL, on_joined, NULL, &err) == QUIRE_OK)
        return 0;
    return is_in_group ? 1 : command_fail(1, err.text);
}

static void on_first(int number)
{
    (void)number;
}

/* From here on, rank 0 handles the signals that a launcher or Kubernetes sends to all ranks, and ends the others. A
 * second signal to this rank ends it. */
static void on_met(void)
{
    const struct sigaction once = {.sa_handler = on_first, .sa_flags = SA_RESTART | SA_RESETHAND};
    sigaction(SIGINT, &once, NULL);
    sigaction(SIGTERM, &once, NULL);
    signal(SIGHUP, SIG_IGN);
}

/* Rank 0 ends hanging ranks that it started itself, but not this one. A rank that does not hang ends well before this
 * time. */
#define HANG_S 10

static void on_over(void)
{
    alarm(HANG_S); /* which ends the process */
}

bool command_as_rank(const char *model, const struct engine_options *options, int *code)
{
    struct hub_model found;
    struct quire_error err;
    uint32_t rank;
    *code = 0;
    if (engine_rank(options, &rank, &err) != QUIRE_OK) {
        *code = command_fail(2, err.text);
        return true;
    }
    if (rank == 0)
        return false;
    int status = hub_model_find(model, false, &found, &err);
    struct engine_options own = *options;
    own.model_dir = found.dir;
    if (status == QUIRE_OK)
        status = engine_work(&own, on_met, on_over, &err);
    if (status != QUIRE_OK)
        *code = command_fail(1, err.text);
    return true;
}
