#include "server/front/tenant/tenants.h"

#include "base/encoding/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)1 << 20)
#define MAX_PER_MINUTE ((int64_t)BUCKET_MAX_PER_MINUTE)

struct tenants {
    struct key256 compare_key; /* keys are compared as hashes with this key */
    char *path;                /* NULL: the keys came from the command line */
    bool ask_key;
    uint32_t n;
    struct tenant *items[TENANTS_MAX];
    struct tenant *in_bulk[TENANTS_MAX]; /* NULL: it had no batch yet */
};

/* ---- one entry ------------------------------------------------------------------------------ */

static struct key256 compared(const struct key256 *compare_key, const struct key256 *sha256)
{
    return quire_keyed_hash(compare_key, sha256, sizeof *sha256);
}

static bool read_hex(const char *text, struct key256 *out)
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(text) != 2 * sizeof out->bytes)
        return false;
    for (size_t i = 0; text[i]; i++) {
        const char *digit = strchr(digits, text[i]);
        if (!digit)
            return false;
        out->bytes[i / 2] = (uint8_t)(out->bytes[i / 2] << 4 | (digit - digits));
    }
    return true;
}

static int read_key(const json_t *entry, const char *where, struct key256 *sha256, struct quire_error *err)
{
    const char *key = NULL, *hex = NULL;
    int status = quire_json_string(entry, where, "key", &key, err);
    if (!status)
        status = quire_json_string(entry, where, "key_sha256", &hex, err);
    if (status)
        return status;
    if (!key == !hex)
        return quire_fail(err, QUIRE_INVALID, "%s: must have one of \"key\" and \"key_sha256\"", where);
    if (hex)
        return read_hex(hex, sha256)
                   ? QUIRE_OK
                   : quire_fail(err, QUIRE_INVALID, "%s: key_sha256: must be 64 lower-case hexadecimal digits", where);
    size_t n = strlen(key);
    if (n == 0 || n > TENANT_MAX_KEY)
        return quire_fail(err, QUIRE_INVALID, "%s: key: must have between 1 and %d bytes", where, TENANT_MAX_KEY);
    *sha256 = quire_sha256(key, n);
    return QUIRE_OK;
}

/* Returns false if it is not a name. */
static bool is_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                            "-_.:");
    return n > 0 && n <= TENANT_MAX_NAME && name[n] == '\0';
}

static int read_name(const json_t *entry, const char *where, char out[TENANT_MAX_NAME + 1], struct quire_error *err)
{
    const char *name = NULL;
    int status = quire_json_string(entry, where, "name", &name, err);
    if (status)
        return status;
    if (!name || !is_name(name))
        return quire_fail(err, QUIRE_INVALID, "%s: name: must be 1 to %d of the characters A-Z a-z 0-9 - _ . :", where,
                          TENANT_MAX_NAME);
    if (strcmp(name, "default") == 0)
        return quire_fail(err, QUIRE_INVALID, "%s: name: \"default\" is tenant 0's", where);
    strcpy(out, name);
    return QUIRE_OK;
}

/* The organisation whose weight the tenant shares with others, if it has one. */
static int read_organisation(const json_t *entry, const char *where, struct tenant *t, struct quire_error *err)
{
    const char *name = NULL;
    int status = quire_json_string(entry, where, "organisation", &name, err);
    if (status)
        return status;
    if (name && !is_name(name))
        return quire_fail(err, QUIRE_INVALID,
                          "%s: organisation: must be 1 to %d of the characters A-Z a-z 0-9 - _ . :", where,
                          TENANT_MAX_NAME);
    if (name)
        strcpy(t->organisation, name);
    else if (json_object_get(entry, "organisation_weight"))
        return quire_fail(err, QUIRE_INVALID, "%s: organisation_weight: needs organisation", where);
    return quire_json_u32(entry, where, "organisation_weight", 1, TENANT_MAX_WEIGHT, &t->organisation_weight, err);
}

/* A misspelt limit would have no effect. */
static int refuse_unknown(const json_t *entry, const char *where, struct quire_error *err)
{
    static const char *const known[] = {
        "name",
        "key",
        "key_sha256",
        "weight",
        "organisation",
        "organisation_weight",
        "class",
        "priority_min",
        "priority_max",
        "requests_per_minute",
        "tokens_per_minute",
        "max_concurrent",
        "max_queued",
        "max_seats",
        "max_kv_blocks",
        "batch_concurrency",
        "admin",
    };
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)entry, key, value)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= strcmp(known[i], key) == 0;
        /* Shows only text that could be a name: a file may contain anything. */
        size_t n = strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (!found)
            return quire_fail(err, QUIRE_INVALID, "%s: \"%.*s\" is not a field of a tenant", where,
                              n < 40 ? (int)n : 40, key);
    }
    return QUIRE_OK;
}

static void tenant_default(struct tenant *t)
{
    *t = (struct tenant){.weight = 1, .organisation_weight = 1, .priority_min = INT32_MIN, .priority_max = INT32_MAX};
}

/* sha256: the key's. */
static int read_entry(const json_t *entry, size_t i, struct tenant *t, struct key256 *sha256, struct quire_error *err)
{
    char where[TENANT_MAX_NAME + 32];
    int64_t low = INT32_MIN, high = INT32_MAX, requests = 0, tokens = 0;
    int status;
    tenant_default(t);
    snprintf(where, sizeof where, "tenant %zu", i + 1);
    if (!json_is_object(entry))
        return quire_fail(err, QUIRE_INVALID, "%s: must be an object", where);
    if ((status = read_name(entry, where, t->name, err)))
        return status;
    snprintf(where, sizeof where, "tenant %zu (%s)", i + 1, t->name);
    if ((status = refuse_unknown(entry, where, err)) || (status = read_key(entry, where, sha256, err)) ||
        (status = quire_json_u32(entry, where, "weight", 1, TENANT_MAX_WEIGHT, &t->weight, err)) ||
        (status = read_organisation(entry, where, t, err)) ||
        (status = quire_json_u32(entry, where, "class", 0, TENANT_CLASSES - 1, &t->class_index, err)) ||
        (status = quire_json_i64(entry, where, "priority_min", INT32_MIN, INT32_MAX, &low, err)) ||
        (status = quire_json_i64(entry, where, "priority_max", low, INT32_MAX, &high, err)) ||
        (status = quire_json_i64(entry, where, "requests_per_minute", 0, MAX_PER_MINUTE, &requests, err)) ||
        (status = quire_json_i64(entry, where, "tokens_per_minute", 0, MAX_PER_MINUTE, &tokens, err)) ||
        (status = quire_json_u32(entry, where, "max_concurrent", 0, UINT32_MAX, &t->max_concurrent, err)) ||
        (status = quire_json_u32(entry, where, "max_queued", 0, UINT32_MAX, &t->max_queued, err)) ||
        (status = quire_json_u32(entry, where, "max_seats", 0, UINT32_MAX, &t->max_seats, err)) ||
        (status = quire_json_u32(entry, where, "max_kv_blocks", 0, UINT32_MAX, &t->max_kv_blocks, err)) ||
        (status = quire_json_u32(entry, where, "batch_concurrency", 1, 100000, &t->batch_concurrency, err)) ||
        (status = quire_json_bool(entry, where, "admin", &t->admin, err)))
        return status;
    t->has_key = true;
    t->priority_min = (int32_t)low;
    t->priority_max = (int32_t)high;
    t->requests_per_minute = (uint64_t)requests;
    t->tokens_per_minute = (uint64_t)tokens;
    return QUIRE_OK;
}

/* ---- a list of them ------------------------------------------------------------------------- */

struct list {
    struct tenant *items;
    size_t n;
};

static int check_twice(const struct list *list, struct quire_error *err)
{
    for (size_t i = 1; i < list->n; i++) {
        for (size_t j = 0; j < i; j++) {
            if (strcmp(list->items[i].name, list->items[j].name) == 0)
                return quire_fail(err, QUIRE_INVALID, "tenant %zu: name: \"%s\" is tenant %zu's", i + 1,
                                  list->items[i].name, j + 1);
            if (memcmp(&list->items[i].key, &list->items[j].key, sizeof list->items[i].key) == 0)
                return quire_fail(err, QUIRE_INVALID, "tenant %zu (%s): key: is tenant %zu's", i + 1,
                                  list->items[i].name, j + 1);
            if (list->items[i].organisation[0] &&
                strcmp(list->items[i].organisation, list->items[j].organisation) == 0 &&
                list->items[i].organisation_weight != list->items[j].organisation_weight)
                return quire_fail(err, QUIRE_INVALID,
                                  "tenant %zu (%s): organisation_weight: is %u for %s, tenant %zu has %u", i + 1,
                                  list->items[i].name, list->items[i].organisation_weight, list->items[i].organisation,
                                  j + 1, list->items[j].organisation_weight);
        }
    }
    return QUIRE_OK;
}

/* list->items is malloc'd, also on failure. */
static int read_list(const json_t *root, const struct key256 *compare_key, struct list *list, struct quire_error *err)
{
    size_t n = json_array_size(root);
    *list = (struct list){NULL, 0};
    if (!json_is_array(root) || n == 0)
        return quire_fail(err, QUIRE_INVALID, "must be a non-empty array of tenants");
    if (n >= TENANTS_MAX)
        return quire_fail(err, QUIRE_INVALID, "at most %u tenants, got %zu", TENANTS_MAX - 1, n);
    list->items = calloc(n, sizeof *list->items);
    if (!list->items)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        struct key256 sha256 = {{0}};
        int status = read_entry(json_array_get(root, i), i, &list->items[i], &sha256, err);
        if (status)
            return status;
        list->items[i].key = compared(compare_key, &sha256);
        list->n++;
    }
    return check_twice(list, err);
}

int tenants_check(const char *text, size_t n_bytes, struct quire_error *err)
{
    struct key256 compare_key = {{0}};
    struct list list;
    json_t *root;
    int status = quire_json_parse(text, n_bytes, 8, "tenants", &root, err);
    if (status)
        return status;
    status = read_list(root, &compare_key, &list, err);
    json_decref(root);
    free(list.items);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------ */

static struct tenant *find_name(const struct tenants *t, const char *name)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (strcmp(t->items[i]->name, name) == 0)
            return t->items[i];
    return NULL;
}

static struct tenant *add(struct tenants *t, const struct tenant *as, uint64_t now_us)
{
    struct tenant *tenant = t->n < TENANTS_MAX ? malloc(sizeof *tenant) : NULL;
    if (!tenant)
        return NULL;
    *tenant = *as;
    tenant->index = t->n;
    bucket_init(&tenant->requests, as->requests_per_minute, now_us);
    bucket_init(&tenant->tokens, as->tokens_per_minute, now_us);
    t->items[t->n++] = tenant;
    return tenant;
}

/* Changes the settings, and keeps the state of the running process. */
static void change(struct tenant *tenant, const struct tenant *as, uint64_t now_us)
{
    const struct tenant old = *tenant;
    *tenant = *as;
    tenant->index = old.index;
    tenant->requests = old.requests;
    tenant->tokens = old.tokens;
    tenant->n_concurrent = old.n_concurrent;
    tenant->n_queued = old.n_queued;
    tenant->n_limited = old.n_limited;
    tenant->answers = old.answers;
    bucket_resize(&tenant->requests, as->requests_per_minute, now_us);
    bucket_resize(&tenant->tokens, as->tokens_per_minute, now_us);
}

static int take(struct tenants *t, const struct list *list, uint64_t now_us, struct quire_error *err)
{
    size_t n_new = 0;
    uint32_t n_old = t->n;
    for (size_t i = 0; i < list->n; i++)
        n_new += find_name(t, list->items[i].name) == NULL;
    if (n_new > TENANTS_MAX - t->n)
        return quire_fail(err, QUIRE_EXHAUSTED,
                          "%u tenants have been named since the start, and there is room for %u "
                          "more only: restart to forget those that are gone",
                          t->n - 1, TENANTS_MAX - t->n);
    /* Adds new tenants first: only this can fail. */
    for (size_t i = 0; i < list->n; i++) {
        if (find_name(t, list->items[i].name) || add(t, &list->items[i], now_us))
            continue;
        while (t->n > n_old)
            free(t->items[--t->n]);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    for (uint32_t i = 0; i < n_old; i++)
        t->items[i]->has_key = false;
    for (size_t i = 0; i < list->n; i++)
        change(find_name(t, list->items[i].name), &list->items[i], now_us);
    return QUIRE_OK;
}

static int create(uint64_t now_us, struct tenants **out, struct quire_error *err)
{
    struct tenant everybody;
    struct tenants *t = calloc(1, sizeof *t);
    *out = t;
    tenant_default(&everybody);
    strcpy(everybody.name, "default");
    if (t)
        quire_random(&t->compare_key, sizeof t->compare_key);
    return t && add(t, &everybody, now_us) ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

static int fill_from_keys(struct tenants *t, const char *const *keys, size_t n_keys, uint64_t now_us,
                          struct quire_error *err)
{
    t->ask_key = n_keys > 0;
    if (n_keys >= TENANTS_MAX)
        return quire_fail(err, QUIRE_INVALID, "at most %u API keys", TENANTS_MAX - 1);
    for (size_t i = 0; i < n_keys; i++) {
        struct tenant tenant;
        size_t n = strlen(keys[i]);
        if (n == 0 || n > TENANT_MAX_KEY)
            return quire_fail(err, QUIRE_INVALID, "an API key is empty or longer than %d bytes", TENANT_MAX_KEY);
        if (tenants_find(t, keys[i]))
            continue; /* the same key again changes nothing */
        struct key256 sha256 = quire_sha256(keys[i], n);
        tenant_default(&tenant);
        snprintf(tenant.name, sizeof tenant.name, "key-%zu", i + 1);
        tenant.has_key = true;
        tenant.key = compared(&t->compare_key, &sha256);
        if (!add(t, &tenant, now_us))
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    return QUIRE_OK;
}

int tenants_from_keys(const char *const *keys, size_t n_keys, uint64_t now_us, struct tenants **out,
                      struct quire_error *err)
{
    int status = create(now_us, out, err);
    if (!status)
        status = fill_from_keys(*out, keys, n_keys, now_us, err);
    if (status) {
        tenants_free(*out);
        *out = NULL;
    }
    return status;
}

int tenants_reload(struct tenants *t, uint64_t now_us, struct quire_error *err)
{
    struct list list;
    json_t *root;
    if (!t->path)
        return QUIRE_OK;
    int status = quire_json_read_file(t->path, MAX_FILE_BYTES, &root, err);
    if (status)
        return status;
    status = read_list(root, &t->compare_key, &list, err);
    json_decref(root);
    if (!status)
        status = take(t, &list, now_us, err);
    free(list.items);
    if (status)
        quire_error_prefix(err, "%s", t->path);
    return status;
}

int tenants_from_file(const char *path, uint64_t now_us, struct tenants **out, struct quire_error *err)
{
    int status = create(now_us, out, err);
    if (!status) {
        (*out)->ask_key = true;
        (*out)->path = strdup(path);
        status = (*out)->path ? tenants_reload(*out, now_us, err) : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    if (status) {
        tenants_free(*out);
        *out = NULL;
    }
    return status;
}

void tenants_free(struct tenants *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < t->n; i++) {
        free(t->items[i]);
        free(t->in_bulk[i]);
    }
    free(t->path);
    free(t);
}

bool tenants_ask_key(const struct tenants *t)
{
    return t->ask_key;
}

struct tenant *tenants_find(const struct tenants *t, const char *key)
{
    struct key256 sha256 = quire_sha256(key, strlen(key));
    struct key256 hash = compared(&t->compare_key, &sha256);
    struct tenant *found = NULL;
    /* Compares all keys in constant time: the duration reveals nothing. */
    for (uint32_t i = 0; i < t->n; i++) {
        int same = quire_secret_equal(&hash, &t->items[i]->key, sizeof hash);
        if (same & t->items[i]->has_key)
            found = t->items[i];
    }
    return found;
}

struct tenant *tenants_at(const struct tenants *t, uint32_t index)
{
    return t->items[index];
}

uint32_t tenants_n(const struct tenants *t)
{
    return t->n;
}

struct tenant *tenants_named(const struct tenants *t, const char *name)
{
    return find_name(t, name);
}

struct tenant *tenants_in_bulk(struct tenants *t, const char *name)
{
    struct tenant *live = find_name(t, name);
    if (!live)
        live = t->items[0];
    struct tenant *bulk = t->in_bulk[live->index];
    if (!bulk)
        bulk = t->in_bulk[live->index] = calloc(1, sizeof *bulk);
    if (!bulk) /* its limits apply, then */
        return live;
    const struct tenant old = *bulk;
    *bulk = *live; /* the file may have been read again */
    bulk->in_bulk = true;
    bulk->admin = false;
    bulk->requests = bulk->tokens = (struct bucket){0};
    bulk->requests_per_minute = bulk->tokens_per_minute = 0;
    bulk->max_concurrent = bulk->max_queued = 0;
    bulk->n_concurrent = old.n_concurrent;
    bulk->n_queued = old.n_queued;
    bulk->n_limited = old.n_limited;
    bulk->answers = old.answers;
    return bulk;
}
