#include "parallel/hosts/carriers/mpi_carrier.h"

#include "parallel/hosts/carriers/mpi_module.h"

#include <dlfcn.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* MPI has nothing to sleep on, so a rank polls: first after 20 us, then each time later by a sixteenth, so that no wait
 * is lengthened by more than that share; up to 2 ms, where 500 polls per second are a few percent of a core. */
#define FIRST_NAP_NS 20000u
#define LAST_NAP_NS 2000000u

struct mpi {
    const struct mpi_module *module;
    uint32_t rank, size, nap_ns;
    struct inbox *inbox;
    bool is_sending[COLLECTIVE_MAX_RANKS];
    unsigned char out[COLLECTIVE_MAX_RANKS][MESSAGE_HEAD_BYTES + MESSAGE_MAX_BYTES];
    unsigned char in[MESSAGE_HEAD_BYTES + MESSAGE_MAX_BYTES];
};

/* ---- finding it ---- */

/* Next to the program, in lib/ next to its folder, or on the loader's path. The MPI's plug-ins need its symbols, so
 * they are global. */
static void *load(const char *name, struct quire_error *err)
{
    static const char *const places[] = {"", "../lib/"};
    char program[PATH_MAX], path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    while (n > 0 && program[n - 1] != '/')
        n--;
    for (int i = 0; i < 2 && n > 0; i++) {
        snprintf(path, sizeof path, "%.*s%s%s", (int)n, program, places[i], name);
        if (access(path, F_OK) != 0)
            continue;
        void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (!library)
            quire_fail(err, QUIRE_UNSUPPORTED, "%s", dlerror());
        return library;
    }
    void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        quire_fail(err, QUIRE_UNSUPPORTED, "%s was not found next to the program, in ../lib or on the loader's path",
                   name);
    return library;
}

/* The library stays loaded: an MPI may not start twice. */
static int find(const char *name, const struct mpi_module **out, struct quire_error *err)
{
    void *library = load(name, err);
    if (!library)
        return QUIRE_UNSUPPORTED;
    const char *version = dlsym(library, MPI_MODULE_VERSION);
    *out = dlsym(library, MPI_MODULE_TABLE);
    if (!version || !*out)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%s is not a library of Quire", name);
    if (strcmp(version, QUIRE_VERSION) != 0)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%s is of Quire version %.40s, but this program has version %s", name,
                          version, QUIRE_VERSION);
    return QUIRE_OK;
}

int mpi_carrier_open(bool is_mpich, uint32_t *rank, uint32_t *size, char *library, void **state,
                     struct quire_error *err)
{
    const struct mpi_module *module;
    int status = find(is_mpich ? "libquire_mpich.so" : "libquire_openmpi.so", &module, err);
    if (status != QUIRE_OK)
        return status;
    struct mpi *m = calloc(1, sizeof *m);
    if (!m)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (!module->open(rank, size, library)) {
        free(m);
        return quire_fail(err, QUIRE_UNSUPPORTED, "%.200s", library);
    }
    *m = (struct mpi){.module = module, .rank = *rank, .size = *size, .nap_ns = FIRST_NAP_NS};
    *state = m;
    return QUIRE_OK;
}

size_t mpi_carrier_bytes(void)
{
    return sizeof(struct mpi);
}

int mpi_carrier_share(void *state, void *bytes, size_t n, struct quire_error *err)
{
    struct mpi *m = state;
    return m->module->share(bytes, n) ? QUIRE_OK : quire_fail(err, QUIRE_UNAVAILABLE, "MPI_Bcast failed");
}

void mpi_carrier_set_inbox(void *state, struct inbox *inbox)
{
    ((struct mpi *)state)->inbox = inbox;
}

/* ---- messages ---- */

static int send_message(void *state, uint32_t peer, const struct message_head *head, const void *payload, bool *done,
                        struct quire_error *err)
{
    struct mpi *m = state;
    (void)err;
    if (head) {
        message_write(head, m->out[peer]);
        if (head->n_payload > 0)
            memcpy(m->out[peer] + MESSAGE_HEAD_BYTES, payload, head->n_payload);
        m->is_sending[peer] = m->module->send(peer, m->out[peer], MESSAGE_HEAD_BYTES + head->n_payload);
        m->inbox->peers[peer].is_closed |= !m->is_sending[peer];
    }
    if (m->is_sending[peer])
        m->is_sending[peer] = !m->module->send_is_done(peer);
    *done = !m->is_sending[peer];
    return QUIRE_OK;
}

static int receive_from(struct mpi *m, uint32_t peer, struct quire_error *err)
{
    struct message_head head;
    size_t n;
    while (inbox_has_place(m->inbox, peer)) {
        if (!m->module->receive(peer, m->in, sizeof m->in, &n)) {
            m->inbox->peers[peer].is_closed = true;
            return QUIRE_OK;
        }
        if (n == 0)
            return QUIRE_OK;
        m->nap_ns = FIRST_NAP_NS;
        if (n < MESSAGE_HEAD_BYTES)
            return quire_fail(err, QUIRE_INVALID, "message: %zu bytes", n);
        int status = message_read(m->in, &head, err);
        if (status == QUIRE_OK && head.n_payload != n - MESSAGE_HEAD_BYTES)
            status = quire_fail(err, QUIRE_INVALID, "message: expected %u bytes, received %zu", head.n_payload,
                                n - MESSAGE_HEAD_BYTES);
        if (status != QUIRE_OK)
            return status;
        struct inbox_message *message = inbox_new(m->inbox);
        if (!message)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        message->head = head;
        memcpy(message->payload, m->in + MESSAGE_HEAD_BYTES, head.n_payload);
        inbox_put(m->inbox, peer, message);
    }
    return QUIRE_OK;
}

static int receive(void *state, uint32_t peer, struct quire_error *err)
{
    struct mpi *m = state;
    int status = QUIRE_OK;
    if (peer != CARRIER_EVERYBODY)
        return peer == m->rank ? QUIRE_OK : receive_from(m, peer, err);
    for (uint32_t r = 0; r < m->size && status == QUIRE_OK; r++)
        if (r != m->rank)
            status = receive_from(m, r, err);
    return status;
}

static void nap(void *state, uint32_t to, int wake_fd, uint32_t ms)
{
    struct mpi *m = state;
    struct pollfd p = {.fd = wake_fd, .events = POLLIN};
    const struct timespec t = {.tv_nsec = m->nap_ns};
    (void)to;
    (void)ms; /* at least one */
    ppoll(&p, 1, &t, NULL);
    m->nap_ns += m->nap_ns / 16;
    if (m->nap_ns > LAST_NAP_NS)
        m->nap_ns = LAST_NAP_NS;
}

static void close_mpi(void *state, bool is_well)
{
    struct mpi *m = state;
    if (!is_well) /* MPI may still read outgoing data: the process ends */
        return;
    m->module->close();
    free(m);
}

const struct carrier mpi_carrier = {
    .send = send_message,
    .receive = receive,
    .sleep = nap,
    .close = close_mpi,
};
