/* The ledger: exact cost, budgets of a day, and a file that survives its process. Keys: keys_test.c. */
#include "base/hash.h"
#include "server/gateway/account/ledger_internal.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define DAY INT64_C(86400)
#define DOLLAR UINT64_C(1000000000000)

static struct event_base *base;
static char folder[64], path[96];

static struct ledger *open_ledger(const char *at)
{
    struct ledger *l;
    struct quire_error err = {.text = ""};
    if (ledger_open(base, at, &l, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return l;
}

static int64_t today(void)
{
    return (int64_t)time(NULL) / DAY;
}

/* ---- money ---------------------------------------------------------------------------------- */

static void cost_to_the_last_digit(void **state)
{
    const struct gateway_price price = {.input = 150000, .cached_input = 20000, .output = 600000, .is_set = true};
    char text[LEDGER_MONEY_BYTES];
    unsigned __int128 sum = 0;
    uint64_t total = 0, seed = 1;
    (void)state;
    for (int i = 0; i < 1000; i++) {
        struct ledger_usage u;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        u = (struct ledger_usage){
            .input = seed >> 44, .cached_input = (seed >> 20) & 0xFFF, .output = (seed >> 8) & 0xFFF};
        if (u.cached_input > u.input)
            u.cached_input = u.input;
        sum += (unsigned __int128)(u.input - u.cached_input) * 150000 + u.cached_input * 20000 + u.output * 600000;
        total += ledger_cost(&price, &u);
    }
    assert_true(total == sum);
    ledger_money(ledger_cost(&price, &(struct ledger_usage){.input = 21, .output = 0}), text);
    assert_string_equal(text, "0.00000315");
    /* More cached tokens than tokens: a server's mistake costs nothing. */
    assert_int_equal(ledger_cost(&price, &(struct ledger_usage){.input = 1, .cached_input = 9}), 20000);
    assert_true(ledger_cost(&(struct gateway_price){.input = 1000 * DOLLAR},
                            &(struct ledger_usage){.input = UINT64_MAX}) == UINT64_MAX);
}

static void money_as_text(void **state)
{
    static const struct {
        uint64_t pico;
        const char *text;
    } rows[] = {{0, "0"},
                {1, "0.000000000001"},
                {DOLLAR, "1"},
                {10 * DOLLAR, "10"},
                {DOLLAR / 2, "0.5"},
                {1234567890123, "1.234567890123"},
                {UINT64_MAX, "18446744.073709551615"},
                {100000000000, "0.1"}};
    char text[LEDGER_MONEY_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ledger_money(rows[i].pico, text);
        assert_string_equal(text, rows[i].text);
    }
}

/* ---- budgets -------------------------------------------------------------------------------- */

static void charge(struct ledger *l, struct ledger_account *a, uint64_t cost, int64_t now_s)
{
    const struct ledger_usage usage = {.input = 10, .cached_input = 4, .output = 5};
    ledger_charge(l, a, "small", cost, 0, &usage, now_s);
}

static void budgets_of_a_day(void **state)
{
    struct api_error e;
    const char *warning;
    (void)state;
    struct ledger *l = open_ledger(NULL);
    struct ledger_account *a = ledger_tenant(l, "acme"), *b = ledger_tenant(l, "other");
    const int64_t noon = 20000 * DAY + DAY / 2;
    assert_false(ledger_asks_key(l));
    assert_string_equal(ledger_tenant_name(a), "acme");
    assert_ptr_equal(a, ledger_tenant(l, "acme"));
    struct payer *tenant = a->payer, *organisation = tenant->above;
    assert_ptr_equal(organisation, b->payer->above);

    charge(l, a, 5 * DOLLAR, noon);
    assert_true(ledger_admit(l, a, noon, &warning, &e)); /* without a budget */
    assert_null(warning);
    tenant->has_budget = true;
    tenant->budget = 10 * DOLLAR;
    charge(l, a, 3 * DOLLAR - 1, noon);
    assert_true(ledger_admit(l, a, noon, &warning, &e));
    assert_null(warning); /* one picodollar below 80 % */
    charge(l, a, 1, noon);
    assert_true(ledger_admit(l, a, noon, &warning, &e));
    assert_string_equal(warning, "tenant acme has used 80 % of its budget for today: 8 of 10 dollars");
    charge(l, a, 2 * DOLLAR, noon);
    assert_false(ledger_admit(l, a, noon, &warning, &e));
    assert_int_equal(e.status, 429);
    assert_int_equal(e.retry_ms, 43200u * 1000);
    assert_string_equal(e.code, "insufficient_quota");
    assert_string_equal(e.why.text, "the budget of tenant acme for a day, 10 dollars, is used up; it is renewed at "
                                    "2024-10-05T00:00:00Z, in 12 h 0 min");
    assert_true(ledger_admit(l, b, noon, &warning, &e));

    /* The organisation's budget is that of all its tenants. */
    tenant->has_budget = false;
    organisation->has_budget = true;
    organisation->budget = 10 * DOLLAR;
    assert_false(ledger_admit(l, b, noon, &warning, &e));
    assert_non_null(strstr(e.why.text, "organisation default"));
    /* The next day begins at midnight, and a clock that goes back does not renew. */
    assert_false(ledger_admit(l, b, 20001 * DAY - 1, &warning, &e));
    assert_int_equal(e.retry_ms, 1000);
    assert_true(ledger_admit(l, b, 20001 * DAY, &warning, &e));
    charge(l, b, 20 * DOLLAR, 20001 * DAY);
    assert_false(ledger_admit(l, b, 20000 * DAY, &warning, &e));
    organisation->budget = 0;
    assert_false(ledger_admit(l, b, 20005 * DAY, &warning, &e)); /* nothing may be spent */
    ledger_close(l);
}

/* ---- the file ------------------------------------------------------------------------------- */

static void the_file(void **state)
{
    struct stat st;
    struct ledger *second;
    struct quire_error err;
    (void)state;
    struct ledger *l = open_ledger(path);
    assert_true(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    for (int i = 0; i < 1000; i++)
        charge(l, ledger_tenant(l, i % 3 ? "acme" : "other"), DOLLAR / 1000 + 1, today() * DAY);
    ledger_close(l);

    l = open_ledger(path);
    assert_true(payer_spent(ledger_tenant(l, "acme")->payer, today() * DAY) == 666 * (DOLLAR / 1000 + 1));
    assert_true(payer_spent(ledger_tenant(l, "other")->payer->above, today() * DAY) == 1000 * (DOLLAR / 1000 + 1));
    /* Another process would not see what this one spends. */
    const pid_t child = fork();
    if (child == 0)
        _exit(ledger_open(base, path, &second, &err) == QUIRE_IO && strstr(err.text, "is open in another process") ? 0
                                                                                                                   : 1);
    int how;
    assert_true(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0);
    ledger_close(l);
}

static void files_that_are_no_ledgers(void **state)
{
    struct ledger *l;
    struct quire_error err;
    char command[512];
    (void)state;
    FILE *f = fopen(path, "w");
    fputs("not a database, but long enough to be taken for one, were it one of SQLite's", f);
    fclose(f);
    assert_int_equal(ledger_open(base, path, &l, &err), QUIRE_IO);
    assert_non_null(strstr(err.text, path));
    assert_null(l);
    snprintf(
        command, sizeof command,
        "rm -f %s* && python3 -c \"import sqlite3; d = sqlite3.connect('%s'); d.execute('create table t(x)'); d.commit()\"",
        path, path);
    assert_int_equal(system(command), 0);
    assert_int_equal(ledger_open(base, path, &l, &err), QUIRE_IO);
    assert_non_null(strstr(err.text, "belongs to another program"));
    assert_int_equal(ledger_open(base, "/dev/null/x", &l, &err), QUIRE_IO);
    assert_int_equal(ledger_open(base, folder, &l, &err), QUIRE_IO);
}

/* Charges 100 dollars, says so through a pipe after a time, and charges 100 more. It is to be killed. */
static void charge_twice(int pipe, uint32_t wait_ms)
{
    struct ledger *l = open_ledger(path);
    for (uint32_t n = 0; n < 200; n++) {
        if (n == 100) {
            usleep(wait_ms * 1000);
            if (write(pipe, "x", 1) != 1)
                _exit(1);
        }
        charge(l, ledger_tenant(l, "acme"), DOLLAR, today() * DAY);
    }
    for (;;)
        pause();
}

/* Returns what the file has after a process was killed, wait_ms after it had charged 100 dollars or later. */
static uint64_t spent_when_killed(uint32_t wait_ms)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0)
        charge_twice(ends[1], wait_ms);
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ends[0]);
    struct ledger *l = open_ledger(path);
    const uint64_t spent = payer_spent(ledger_tenant(l, "acme")->payer, today() * DAY);
    ledger_close(l);
    return spent;
}

/* Usage is written by itself. That takes 50 ms, and longer where the writer's thread does not run. */
static void killed(void **state)
{
    uint64_t before = 0, spent = 0;
    (void)state;
    for (uint32_t wait_ms = 500; wait_ms <= 64000; wait_ms *= 2) {
        before = spent;
        spent = spent_when_killed(wait_ms);
        assert_true(spent % DOLLAR == 0 && spent >= before && spent <= before + 200 * DOLLAR);
        if (spent >= before + 100 * DOLLAR)
            break;
    }
    assert_true(spent >= before + 100 * DOLLAR);
}

/* A disk without space: a limit of the file's size has the same effect. */
static void a_full_disk(void **state)
{
    struct rlimit before, none = {0};
    (void)state;
    struct ledger *l = open_ledger(path);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    none.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    for (int i = 0; i < 3; i++) {
        charge(l, ledger_tenant(l, "acme"), DOLLAR, today() * DAY);
        usleep(200000);
    }
    struct ledger *second;
    struct quire_error err;
    char other[128];
    snprintf(other, sizeof other, "%s2", path);
    assert_int_equal(ledger_open(base, other, &second, &err), QUIRE_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    usleep(3000000); /* the next attempt comes after a second */
    ledger_close(l);
    l = open_ledger(path);
    assert_true(payer_spent(ledger_tenant(l, "acme")->payer, today() * DAY) == 3 * DOLLAR);
    ledger_close(l);
}

/* ---- set-up --------------------------------------------------------------------------------- */

/* Budgets are of a day: a test does not begin in the last minutes of one. */
static int begin(void **state)
{
    (void)state;
    while (time(NULL) % DAY >= DAY - 120)
        sleep(1);
    strcpy(folder, "/tmp/quire-ledger-XXXXXX");
    base = mkdtemp(folder) ? event_base_new() : NULL;
    snprintf(path, sizeof path, "%s/ledger", folder);
    return base ? 0 : -1;
}

static int end(void **state)
{
    char command[128];
    (void)state;
    event_base_free(base);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cost_to_the_last_digit),
        cmocka_unit_test(money_as_text),
        cmocka_unit_test_setup_teardown(budgets_of_a_day, begin, end),
        cmocka_unit_test_setup_teardown(the_file, begin, end),
        cmocka_unit_test_setup_teardown(files_that_are_no_ledgers, begin, end),
        cmocka_unit_test_setup_teardown(killed, begin, end),
        cmocka_unit_test_setup_teardown(a_full_disk, begin, end),
    };
    if (quire_hash_init() != QUIRE_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
