/* How ranks started by a launcher find each other: only matching ranks with the secret join, and other traffic to rank
 * 0's port does no harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/hash.h"
#include "parallel/hosts/hosts.h"
#include "parallel/hosts/join_frame.h"
#include "ranks.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECRET "correct horse battery staple"
#define PATIENCE_MS 120000u /* for ranks that all come; twice a test's bound for what is not waited for */

#define N_PROCESSES 64

struct start {
    uint32_t rank, size;
    const char *secret; /* NULL: none */
    const char *address;
    uint32_t join_ms;
    bool stays; /* after it joined, until finish() or its end */
};

struct meeting {
    uint16_t port;
    int port_fd; /* what holds it */
    uint32_t n;
    pid_t processes[N_PROCESSES];
    struct outcome *outcomes; /* [N_PROCESSES] */
    int hold[2]; /* a pipe: a rank that stays reads its end */
};

static void begin(struct meeting *m)
{
    *m = (struct meeting){.n = 0};
    m->port = hold_port(&m->port_fd);
    m->outcomes = mmap(NULL, N_PROCESSES * sizeof *m->outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                       0);
    assert_true(m->outcomes != MAP_FAILED);
    assert_int_equal(pipe(m->hold), 0);
}

/* A process that joins, and then meets the others at a barrier. */
static uint32_t add(struct meeting *m, struct start s)
{
    const uint32_t i = m->n++;
    m->processes[i] = fork();
    assert_true(m->processes[i] >= 0);
    if (m->processes[i] > 0)
        return i;
    struct quire_error err = {.text = ""};
    struct collective *c = NULL;
    struct position position = {.launcher = "a test", .rank = s.rank, .size = s.size, .port = m->port};
    const struct hosts_options options = {.position = &position,
                                          .transport = TRANSPORT_TCP,
                                          .timeout_ms = PATIENCE_MS,
                                          .join_ms = s.join_ms ? s.join_ms : PATIENCE_MS};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(position.address, sizeof position.address, "%s", s.address ? s.address : "127.0.0.1");
    if (s.secret)
        setenv("QUIRE_GROUP_SECRET", s.secret, 1);
    else
        unsetenv("QUIRE_GROUP_SECRET");
    int status = hosts_join(&options, &c, &err);
    if (status == QUIRE_OK)
        status = collective_barrier(c, &err);
    if (s.stays && status == QUIRE_OK) {
        char byte;
        atomic_store(&m->outcomes[i].progress, 1);
        close(m->hold[1]);
        if (read(m->hold[0], &byte, 1) == 0)
            status = collective_barrier(c, &err);
    }
    collective_leave(c);
    m->outcomes[i].status = status;
    memcpy(m->outcomes[i].text, err.text, sizeof err.text);
    _exit(0);
}

static const struct outcome *end(struct meeting *m, uint32_t i)
{
    if (m->processes[i])
        assert_int_equal(waitpid(m->processes[i], NULL, 0), m->processes[i]);
    m->processes[i] = 0;
    return &m->outcomes[i];
}

static void expect(struct meeting *m, uint32_t i, int status, const char *says)
{
    const struct outcome *o = end(m, i);
    if (o->status != status || !strstr(o->text, says))
        print_error("process %u: %d, \"%s\", not %d with \"%s\"\n", i, o->status, o->text, status, says);
    assert_int_equal(o->status, status);
    assert_non_null(strstr(o->text, says));
}

/* Waits for the end of one of two processes, whichever ends first. */
static uint32_t end_one(struct meeting *m, uint32_t i, uint32_t j)
{
    const pid_t ended = waitpid(-1, NULL, 0);
    assert_true(ended == m->processes[i] || ended == m->processes[j]);
    const uint32_t which = ended == m->processes[i] ? i : j;
    m->processes[which] = 0;
    return which;
}

static void let_go(struct meeting *m)
{
    close(m->hold[1]);
    m->hold[1] = -1;
}

static void finish(struct meeting *m)
{
    if (m->hold[1] >= 0)
        let_go(m);
    close(m->hold[0]);
    close(m->port_fd);
    for (uint32_t i = 0; i < m->n; i++)
        end(m, i);
    munmap(m->outcomes, N_PROCESSES * sizeof *m->outcomes);
}

/* ---- matching ranks ---- */

static void ranks_with_the_same_secret_meet_in_any_order(void **state)
{
    (void)state;
    static const uint32_t orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}};
    for (size_t k = 0; k < 2; k++) {
        struct meeting m;
        begin(&m);
        for (uint32_t i = 0; i < 4; i++) {
            add(&m, (struct start){.rank = orders[k][i], .size = 4, .secret = k ? SECRET "\n" : NULL});
            usleep(20000);
        }
        for (uint32_t i = 0; i < 4; i++)
            expect(&m, i, QUIRE_OK, "");
        finish(&m);
    }
}

static void they_meet_over_ipv6(void **state)
{
    (void)state;
    struct meeting m;
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    bool is_there = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    if (!is_there) {
        print_message("no IPv6 here\n");
        skip();
    }
    begin(&m);
    for (uint32_t r = 0; r < 3; r++)
        add(&m, (struct start){.rank = r, .size = 3, .secret = SECRET, .address = "::1"});
    for (uint32_t r = 0; r < 3; r++)
        expect(&m, r, QUIRE_OK, "");
    finish(&m);
}

static void another_secret_is_refused_and_the_right_one_served(void **state)
{
    (void)state;
    struct meeting m;
    begin(&m);
    add(&m, (struct start){.rank = 0, .size = 2, .secret = SECRET});
    uint32_t wrong = add(&m, (struct start){.rank = 1, .size = 2, .secret = SECRET "!"});
    expect(&m, wrong, QUIRE_INVALID, "rank 0: welcome: the peer has another group secret (QUIRE_GROUP_SECRET)");
    wrong = add(&m, (struct start){.rank = 1, .size = 2});
    expect(&m, wrong, QUIRE_INVALID, "the peer has another group secret (QUIRE_GROUP_SECRET)");
    uint32_t right = add(&m, (struct start){.rank = 1, .size = 2, .secret = SECRET});
    expect(&m, right, QUIRE_OK, "");
    expect(&m, 0, QUIRE_OK, "");
    finish(&m);
}

static void a_secret_is_no_word_and_without_one_loopback_is_all(void **state)
{
    (void)state;
    struct meeting m;
    begin(&m);
    expect(&m, add(&m, (struct start){.size = 2, .secret = "short"}), QUIRE_INVALID,
           "QUIRE_GROUP_SECRET: must have 16");
    expect(&m, add(&m, (struct start){.size = 2, .address = "192.0.2.1"}), QUIRE_INVALID, "set QUIRE_GROUP_SECRET");
    expect(&m, add(&m, (struct start){.rank = 1, .size = 2, .address = "192.0.2.1"}), QUIRE_INVALID,
           "set QUIRE_GROUP_SECRET");
    finish(&m);
}

static void who_does_not_fit_is_told_why(void **state)
{
    (void)state;
    struct meeting m;
    begin(&m);
    add(&m, (struct start){.rank = 0, .size = 3});
    expect(&m, add(&m, (struct start){.rank = 1, .size = 4}), QUIRE_INVALID,
           "rank 1 expects 4 ranks, but rank 0 expects 3");
    const uint32_t first = add(&m, (struct start){.rank = 1, .size = 3}),
                   second = add(&m, (struct start){.rank = 1, .size = 3});
    const uint32_t loser = end_one(&m, first, second); /* the one that called later */
    expect(&m, loser, QUIRE_INVALID, "two processes are rank 1 (");
    add(&m, (struct start){.rank = 2, .size = 3});
    for (uint32_t i = 0; i < m.n; i++)
        if (i != 1 && i != loser)
            expect(&m, i, QUIRE_OK, "");
    finish(&m);
}

static void who_does_not_come_is_named(void **state)
{
    (void)state;
    struct meeting m;
    for (uint32_t join_ms = 2000;; join_ms *= 2) {
        assert_true(join_ms < PATIENCE_MS);
        begin(&m);
        add(&m, (struct start){.rank = 0, .size = 4, .join_ms = join_ms});
        add(&m, (struct start){.rank = 2, .size = 4});
        if (!strstr(end(&m, 0)->text, "ranks: 1, 2, 3 of 4")) /* else rank 2 did not run in this time */
            break;
        kill(m.processes[1], SIGKILL);
        finish(&m);
    }
    expect(&m, 0, QUIRE_UNAVAILABLE, "ranks: 1, 3 of 4 did not connect");
    expect(&m, 1, QUIRE_UNAVAILABLE, "waiting for all ranks to connect to rank 0 (");
    finish(&m);
    begin(&m);
    add(&m, (struct start){.rank = 1, .size = 2, .join_ms = 300});
    expect(&m, 0, QUIRE_UNAVAILABLE, "rank 0: Connection refused");
    finish(&m);
}

/* ---- other traffic ---- */

static int connect_to(uint16_t port)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    const uint64_t began = quire_now_ms();
    while (connect(fd, (const struct sockaddr *)&at, sizeof at) != 0 && quire_now_ms() - began < PATIENCE_MS)
        usleep(10000);
    return fd;
}

static void noise_at_the_port_harms_nobody(void **state)
{
    (void)state;
    struct meeting m;
    unsigned char bytes[4096], hello[JOIN_HELLO_BYTES];
    int held[40];
    begin(&m);
    add(&m, (struct start){.rank = 0, .size = 2, .secret = SECRET});
    const struct join_hello good = {.kind = JOIN_CONTROL, .carrier = JOIN_BY_TCP, .rank = 1, .size = 2};
    join_hello_write(&good, hello);
    for (int i = 0; i < 60; i++) {
        int fd = connect_to(m.port);
        quire_random(bytes, sizeof bytes);
        if (i % 3 == 1) /* up to the proof, and then noise */
            send(fd, hello, sizeof hello, MSG_NOSIGNAL);
        if (i % 3 == 2) {
            memcpy(bytes, hello, sizeof hello);
            bytes[(size_t)i % 32] ^= (unsigned char)(1 + i);
        }
        send(fd, bytes, i % 5 ? sizeof bytes : (size_t)i, MSG_NOSIGNAL);
        close(fd);
    }
    for (int i = 0; i < 40; i++) { /* more than the listener has slots, all of them silent */
        held[i] = connect_to(m.port);
        send(held[i], hello, (size_t)i % 5, MSG_NOSIGNAL);
    }
    const uint64_t began = quire_now_ms();
    add(&m, (struct start){.rank = 1, .size = 2, .secret = SECRET});
    expect(&m, 1, QUIRE_OK, "");
    expect(&m, 0, QUIRE_OK, "");
    assert_true(quire_now_ms() - began < PATIENCE_MS / 2);
    for (int i = 0; i < 40; i++)
        close(held[i]);
    finish(&m);
}

/* The port of a complete group: noise, and a process that is one too many. */
static void who_comes_too_late_is_told_at_once(void **state)
{
    (void)state;
    struct meeting m;
    unsigned char bytes[4096];
    begin(&m);
    for (uint32_t r = 0; r < 3; r++)
        add(&m, (struct start){.rank = r, .size = 3, .secret = SECRET, .stays = true});
    for (uint32_t r = 0; r < 3; r++)
        while (!atomic_load(&m.outcomes[r].progress))
            usleep(1000);
    for (int i = 0; i < 8; i++) {
        int fd = connect_to(m.port);
        quire_random(bytes, sizeof bytes);
        send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
        close(fd);
    }
    char taken[64];
    const uint64_t began = quire_now_ms();
    uint32_t late = add(&m, (struct start){.rank = 1, .size = 3, .secret = SECRET});
    end(&m, late);
    snprintf(taken, sizeof taken, "process %d)", (int)m.processes[1]);
    expect(&m, late, QUIRE_INVALID, "rank 0: two processes are rank 1 (");
    expect(&m, late, QUIRE_INVALID, taken);
    expect(&m, add(&m, (struct start){.rank = 7, .size = 8, .secret = SECRET}), QUIRE_INVALID,
           "rank 7 cannot join: all 3 ranks are connected");
    expect(&m, add(&m, (struct start){.rank = 1, .size = 3, .secret = SECRET "!"}), QUIRE_INVALID,
           "another group secret (QUIRE_GROUP_SECRET)");
    assert_true(quire_now_ms() - began < PATIENCE_MS / 2);
    kill(m.processes[1], SIGSTOP); /* its slot may be free in a moment: once two heartbeats are missing */
    do {
        usleep(20000);
        late = add(&m, (struct start){.rank = 1, .size = 3, .secret = SECRET, .join_ms = 500});
    } while (m.n < N_PROCESSES && end(&m, late)->status == QUIRE_INVALID);
    kill(m.processes[1], SIGCONT);
    expect(&m, late, QUIRE_UNAVAILABLE, "rank 0: "); /* closed, or about to be, on each attempt */
    let_go(&m);
    for (uint32_t r = 0; r < 3; r++)
        expect(&m, r, QUIRE_OK, "");
    finish(&m);
}

/* Each byte of a valid exchange inverted: none of them joins. */
static void no_byte_of_a_proof_can_be_another(void **state)
{
    (void)state;
    struct quire_error err;
    struct join_welcome welcome = {.status = QUIRE_OK, .process = 7, .host = "a", .text = ""}, got;
    struct join_hello hello = {.kind = JOIN_DATA, .carrier = JOIN_BY_TCP, .rank = 1, .size = 2, .host = "b"}, heard;
    struct key256 key, other;
    unsigned char h[JOIN_HELLO_BYTES], c[JOIN_CHALLENGE_BYTES], p[JOIN_PROOF_BYTES], w[JOIN_WELCOME_BYTES];
    quire_random(&key, sizeof key);
    quire_random(&other, sizeof other);
    quire_random(hello.nonce, sizeof hello.nonce);
    join_hello_write(&hello, h);
    join_challenge_write(0, c);
    join_proof_write(&key, h, c, p);
    join_welcome_write(&key, h, c, &welcome, w);
    assert_int_equal(join_hello_read(h, &heard, &err), QUIRE_OK);
    assert_memory_equal(&heard, &hello, sizeof hello);
    assert_int_equal(join_proof_check(&key, h, c, p, &err), QUIRE_OK);
    assert_int_equal(join_proof_check(&other, h, c, p, &err), QUIRE_INVALID);
    assert_int_equal(join_welcome_read(&key, h, c, w, &got, &err), QUIRE_OK);
    assert_int_equal(got.process, 7);
    assert_int_equal(join_welcome_read(&other, h, c, w, &got, &err), QUIRE_INVALID);
    for (size_t i = 0; i < sizeof h; i++) {
        h[i] ^= 0x40;
        assert_int_equal(join_proof_check(&key, h, c, p, &err), QUIRE_INVALID);
        assert_int_equal(join_welcome_read(&key, h, c, w, &got, &err), QUIRE_INVALID);
        h[i] ^= 0x40;
    }
    for (size_t i = 0; i < sizeof c; i++) {
        c[i] ^= 1;
        assert_int_equal(join_proof_check(&key, h, c, p, &err), QUIRE_INVALID);
        c[i] ^= 1;
    }
    for (size_t i = 0; i < sizeof p; i++) {
        p[i] ^= 1;
        assert_int_equal(join_proof_check(&key, h, c, p, &err), QUIRE_INVALID);
        p[i] ^= 1;
    }
    for (size_t i = 0; i < sizeof w; i++) {
        w[i] ^= 1;
        assert_int_equal(join_welcome_read(&key, h, c, w, &got, &err), QUIRE_INVALID);
        w[i] ^= 1;
    }
    h[4] = 9;
    assert_int_equal(join_hello_read(h, &heard, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "version 9 is not supported; this program uses version 1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_byte_of_a_proof_can_be_another),
        cmocka_unit_test(ranks_with_the_same_secret_meet_in_any_order),
        cmocka_unit_test(they_meet_over_ipv6),
        cmocka_unit_test(another_secret_is_refused_and_the_right_one_served),
        cmocka_unit_test(a_secret_is_no_word_and_without_one_loopback_is_all),
        cmocka_unit_test(who_does_not_fit_is_told_why),
        cmocka_unit_test(who_does_not_come_is_named),
        cmocka_unit_test(noise_at_the_port_harms_nobody),
        cmocka_unit_test(who_comes_too_late_is_told_at_once),
    };
    return quire_hash_init() == 0 ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
