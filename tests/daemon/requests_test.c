/* Tests the table of live requests against a simple model. */
#include "server/daemon/requests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* Only compared, never followed. */
static struct connection *connection_of(size_t i)
{
    static char connections[4];
    return (struct connection *)(void *)&connections[i];
}

static void test_late_ids_find_nothing(void **state)
{
    struct request_table table = {.first_free = NO_REQUEST};
    struct request_list list;
    (void)state;
    request_list_init(&list);
    assert_null(request_by_engine_id(&table, 0));
    assert_null(request_by_engine_id(&table, 1));
    struct live_request *r = request_add(&table, &list, connection_of(0), 7);
    assert_non_null(r);
    uint64_t first = r->engine_id;
    assert_ptr_equal(request_by_engine_id(&table, first), r);
    request_remove(&table, &list, r);
    assert_null(request_by_engine_id(&table, first));
    r = request_add(&table, &list, connection_of(0), 7); /* the same slot */
    assert_true(r->engine_id != first);
    assert_int_equal((uint32_t)r->engine_id, (uint32_t)first);
    assert_null(request_by_engine_id(&table, first));
    assert_null(request_by_engine_id(&table, UINT64_MAX));
    request_list_free(&list);
    request_table_free(&table);
}

struct model {
    uint64_t engine_id, wire_id;
    size_t list; /* 4: an orphan */
};

static void test_random(void **state)
{
    enum { MOST = 300, LISTS = 4 };
    struct request_table table = {.first_free = NO_REQUEST};
    struct request_list lists[LISTS];
    static struct model model[MOST];
    uint32_t n = 0, n_of[LISTS + 1] = {0};
    uint64_t next_id = 1;
    (void)state;
    for (size_t i = 0; i < LISTS; i++)
        request_list_init(&lists[i]);
    srand(3);
    for (int step = 0; step < 50000; step++) {
        if (n < MOST && rand() % 2) {
            size_t list = (size_t)rand() % LISTS;
            struct live_request *r = request_add(&table, &lists[list], connection_of(list), next_id);
            assert_non_null(r);
            model[n++] = (struct model){r->engine_id, next_id++, list};
            n_of[list]++;
        } else if (n) {
            uint32_t at = (uint32_t)rand() % n;
            struct live_request *r = request_by_engine_id(&table, model[at].engine_id);
            size_t list = model[at].list;
            assert_non_null(r);
            assert_true(r->wire_id == model[at].wire_id);
            assert_ptr_equal(r->connection, list < LISTS ? connection_of(list) : NULL);
            n_of[list]--;
            if (list < LISTS) {
                assert_ptr_equal(request_by_wire_id(&table, &lists[list], r->wire_id), r);
                assert_null(request_by_wire_id(&table, &lists[(list + 1) % LISTS], r->wire_id));
            }
            if (list < LISTS && rand() % 3 == 0) {
                request_orphan(&table, &lists[list], r);
                model[at].list = LISTS;
                n_of[LISTS]++;
            } else {
                request_remove(&table, list < LISTS ? &lists[list] : NULL, r);
                assert_null(request_by_engine_id(&table, model[at].engine_id));
                model[at] = model[--n];
            }
        }
        assert_int_equal(table.n_live, n);
    }
    for (size_t i = 0; i < LISTS; i++) {
        uint32_t n_linked = 0;
        for (uint32_t at = lists[i].first; at != NO_REQUEST; at = table.slots[at].next)
            n_linked++;
        assert_int_equal(n_linked, n_of[i]);
        assert_int_equal(lists[i].n, n_of[i]);
        request_list_free(&lists[i]);
    }
    request_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late_ids_find_nothing),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
