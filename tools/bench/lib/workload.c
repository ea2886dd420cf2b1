#include "tools/bench/lib/workload.h"

#include "base/encoding/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_COLUMNS 64
#define MAX_TIME_MS 1e12
#define NS_PER_S 1000000000

const struct bench_workload_form bench_workload_mooncake = {.unit_ms = 1, .block_tokens = BENCH_WORKLOAD_BLOCK};

struct reader {
    const char *name;
    const struct bench_workload_form *form;
    struct bench_workload *out;
    struct quire_error *err;
    size_t line; /* the current one, from 1 */
    size_t rows_capacity, hashes_capacity;
    int64_t first_ns, last_ns;
};

static int out_of_memory(const struct reader *r)
{
    return quire_fail(r->err, QUIRE_NO_MEMORY, "%s: out of memory", r->name);
}

/* A row whose arrival is still in nanoseconds of some clock. */
static int add_row(struct reader *r, int64_t ns, const struct bench_workload_row *row)
{
    struct bench_workload *t = r->out;
    if (t->n_rows == r->rows_capacity) {
        size_t capacity = r->rows_capacity ? 2 * r->rows_capacity : 1024;
        struct bench_workload_row *grown = realloc(t->rows, capacity * sizeof *grown);
        if (!grown)
            return out_of_memory(r);
        t->rows = grown;
        r->rows_capacity = capacity;
    }
    if (t->n_rows == 0)
        r->first_ns = ns;
    else if (ns < r->last_ns)
        return quire_fail(r->err, QUIRE_INVALID,
                          "%s: line %zu: is earlier than the line before it; sort the file by "
                          "time",
                          r->name, r->line);
    r->last_ns = ns;
    t->rows[t->n_rows] = *row;
    t->rows[t->n_rows++].arrival_s = (double)(ns - r->first_ns) * 1e-9;
    return QUIRE_OK;
}

/* ---- lines of JSON ---- */

static int add_hashes(struct reader *r, const json_t *ids, struct bench_workload_row *row, const char *where)
{
    struct bench_workload *t = r->out;
    size_t n = json_array_size(ids);
    row->first_hash = t->n_hashes;
    row->n_hashes = (uint32_t)n;
    if (n > 0 && !r->form->own_tail && (uint64_t)n * r->form->block_tokens < row->n_input)
        return quire_fail(r->err, QUIRE_INVALID,
                          "%s: hash_ids: %zu blocks of %u tokens are fewer than the %u of input_length", where, n,
                          r->form->block_tokens, row->n_input);
    if (t->n_hashes + n > r->hashes_capacity) {
        size_t capacity = 2 * (t->n_hashes + n);
        uint64_t *grown = realloc(t->hashes, capacity * sizeof *grown);
        if (!grown)
            return out_of_memory(r);
        t->hashes = grown;
        r->hashes_capacity = capacity;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id))
            return quire_fail(r->err, QUIRE_INVALID, "%s: hash_ids: element %zu must be an integer", where, i);
        t->hashes[t->n_hashes++] = (uint64_t)json_integer_value(id);
    }
    return QUIRE_OK;
}

bool bench_workload_is_name(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(name[i] >= 'a' && name[i] <= 'z') && !(name[i] >= 'A' && name[i] <= 'Z') &&
            !(name[i] >= '0' && name[i] <= '9') && !strchr("._-", name[i]))
            return false;
    return n > 0 && n <= BENCH_WORKLOAD_MAX_NAME;
}

static int find_tenant(struct reader *r, const char *name, const char *where, uint32_t *out)
{
    struct bench_workload *t = r->out;
    if (!bench_workload_is_name(name, strlen(name)))
        return quire_fail(r->err, QUIRE_INVALID, "%s: tenant: must be 1 to %u letters, digits and ._-", where,
                          BENCH_WORKLOAD_MAX_NAME);
    for (*out = 0; *out < t->n_tenants; ++*out)
        if (strcmp(t->tenants[*out], name) == 0)
            return QUIRE_OK;
    if (t->n_tenants == BENCH_WORKLOAD_MAX_TENANTS)
        return quire_fail(r->err, QUIRE_INVALID, "%s: tenant: more than %u tenants", where, BENCH_WORKLOAD_MAX_TENANTS);
    strcpy(t->tenants[t->n_tenants++], name);
    return QUIRE_OK;
}

/* Optional fields of traces made for Quire. */
static int read_service(struct reader *r, const json_t *object, const char *where, struct bench_workload_row *row)
{
    const char *tenant = NULL;
    int64_t priority = 0;
    int status = quire_json_string(object, where, "tenant", &tenant, r->err);
    if (status == QUIRE_OK && tenant)
        status = find_tenant(r, tenant, where, &row->tenant);
    if (status == QUIRE_OK)
        status = quire_json_u32(object, where, "class", 0, 7, &row->class_index, r->err);
    if (status == QUIRE_OK)
        status = quire_json_i64(object, where, "priority", INT32_MIN, INT32_MAX, &priority, r->err);
    if (status == QUIRE_OK)
        status = quire_json_f64(object, where, "deadline_ms", 0, MAX_TIME_MS, &row->deadline_ms, r->err);
    row->priority = (int32_t)priority;
    return status;
}

static int read_object(struct reader *r, const json_t *object, const char *where)
{
    struct bench_workload_row row = {0};
    double ms = -1;
    json_t *ids = NULL;
    if (!json_is_object(object))
        return quire_fail(r->err, QUIRE_INVALID, "%s: must be an object", where);
    int status = quire_json_f64(object, where, "timestamp", 0, MAX_TIME_MS / r->form->unit_ms, &ms, r->err);
    if (status == QUIRE_OK)
        status = quire_json_u32(object, where, "input_length", 1, BENCH_MAX_LENGTH, &row.n_input, r->err);
    if (status == QUIRE_OK)
        status = quire_json_u32(object, where, "output_length", 1, BENCH_MAX_LENGTH, &row.n_output, r->err);
    if (status == QUIRE_OK)
        status = quire_json_array(object, where, "hash_ids", &ids, r->err);
    if (status == QUIRE_OK)
        status = read_service(r, object, where, &row);
    if (status != QUIRE_OK)
        return status;
    if (ms < 0 || row.n_input == 0 || row.n_output == 0)
        return quire_fail(r->err, QUIRE_INVALID, "%s: must have timestamp, input_length and output_length", where);
    status = add_hashes(r, ids, &row, where);
    return status == QUIRE_OK ? add_row(r, llround(ms * r->form->unit_ms * 1e6), &row) : status;
}

static int read_json_line(struct reader *r, const char *line, size_t n)
{
    char where[160];
    json_t *object;
    snprintf(where, sizeof where, "%.120s: line %zu", r->name, r->line);
    int status = quire_json_parse(line, n, 4, where, &object, r->err);
    if (status != QUIRE_OK)
        return status;
    status = read_object(r, object, where);
    json_decref(object);
    return status;
}

/* ---- CSV ---- */

enum column { INPUT, OUTPUT, DATE, NANOSECONDS, N_KNOWN };

static const struct {
    const char *name;
    enum column column;
} columns[] = {
    {"ContextTokens", INPUT},      {"input_toks", INPUT},
    {"num_prefill_tokens", INPUT}, {"GeneratedTokens", OUTPUT},
    {"output_toks", OUTPUT},       {"num_decode_tokens", OUTPUT},
    {"TIMESTAMP", DATE},           {"arrival_time_ns", NANOSECONDS},
};

struct field {
    const char *text;
    size_t n;
};

/* Binary files, such as recordings, have control bytes. */
static bool is_text(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < 0x20 && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

/* The fields of a line; at most MAX_COLUMNS are read. */
static size_t split(const char *line, size_t n, struct field fields[MAX_COLUMNS])
{
    size_t count = 0;
    for (const char *at = line, *end = line + n; count < MAX_COLUMNS; at++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        fields[count++] = (struct field){at, (size_t)((comma ? comma : end) - at)};
        if (!comma)
            break;
        at = comma;
    }
    return count;
}

static int read_header(const struct reader *r, const char *line, size_t n, int where[N_KNOWN])
{
    struct field fields[MAX_COLUMNS];
    size_t count = split(line, n, fields);
    for (int i = 0; i < N_KNOWN; i++)
        where[i] = -1;
    for (size_t f = 0; f < count; f++)
        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
            if (strlen(columns[c].name) == fields[f].n && memcmp(columns[c].name, fields[f].text, fields[f].n) == 0)
                where[columns[c].column] = (int)f;
    if (where[INPUT] < 0 || where[OUTPUT] < 0)
        return quire_fail(r->err, QUIRE_INVALID,
                          "%s: line %zu: is neither JSON nor a header with lengths: ContextTokens,GeneratedTokens, "
                          "input_toks,output_toks or num_prefill_tokens,num_decode_tokens%s",
                          r->name, r->line, is_text(line, n) ? "" : "; a recording needs --trace-format recording");
    return QUIRE_OK;
}

/* Text of an untrusted file, for a message on a terminal. */
static const char *quote(const struct field *f, char out[41])
{
    size_t n = f->n < 40 ? f->n : 40;
    for (size_t i = 0; i < n; i++)
        out[i] = f->text[i] >= 0x20 && f->text[i] < 0x7f ? f->text[i] : '?';
    out[n] = 0;
    return out;
}

static int read_whole(const struct reader *r, const struct field *f, const char *name, uint64_t min, uint64_t max,
                      uint64_t *out)
{
    uint64_t value = 0;
    char shown[41];
    bool ok = f->n > 0 && f->n <= 19;
    for (size_t i = 0; i < f->n && ok; i++) {
        ok = f->text[i] >= '0' && f->text[i] <= '9';
        value = value * 10 + (uint64_t)(f->text[i] - '0');
    }
    if (!ok || value < min || value > max)
        return quire_fail(r->err, QUIRE_INVALID,
                          "%s: line %zu: %s: must be a whole number from %llu to %llu, got \"%s\"", r->name, r->line,
                          name, (unsigned long long)min, (unsigned long long)max, quote(f, shown));
    *out = value;
    return QUIRE_OK;
}

/* "2023-11-16 18:17:03.9799600", optionally with "+00:00" or "Z", to nanoseconds since 1970. */
static int read_date(const struct reader *r, const struct field *f, int64_t *ns)
{
    char text[48], shown[41];
    struct tm tm = {0};
    double fraction = 0;
    const char *end = NULL;
    if (f->n < sizeof text) {
        memcpy(text, f->text, f->n);
        text[f->n] = 0;
        end = strptime(text, "%Y-%m-%d", &tm);
        if (end && (*end == ' ' || *end == 'T'))
            end = strptime(end + 1, "%H:%M:%S", &tm);
        else
            end = NULL;
    }
    if (end && *end == '.') {
        double unit = 0.1;
        for (end++; *end >= '0' && *end <= '9'; end++, unit /= 10)
            fraction += unit * (*end - '0');
    }
    if (!end || (*end && strcmp(end, "Z") != 0 && strcmp(end, "+00:00") != 0) || tm.tm_year < 70 || tm.tm_year > 230)
        return quire_fail(r->err, QUIRE_INVALID,
                          "%s: line %zu: TIMESTAMP: must be like 2023-11-16 18:17:03.9799600, got \"%s\"", r->name,
                          r->line, quote(f, shown));
    *ns = (int64_t)timegm(&tm) * NS_PER_S + llround(fraction * NS_PER_S);
    return QUIRE_OK;
}

static int read_csv_line(struct reader *r, const char *line, size_t n, const int where[N_KNOWN])
{
    struct field fields[MAX_COLUMNS];
    size_t count = split(line, n, fields);
    uint64_t n_input = 0, n_output = 0, ns = 0;
    int64_t at = 0;
    for (int i = 0; i < N_KNOWN; i++)
        if (where[i] >= 0 && (size_t)where[i] >= count)
            return quire_fail(r->err, QUIRE_INVALID, "%s: line %zu: has %zu columns, fewer than its header", r->name,
                              r->line, count);
    int status = read_whole(r, &fields[where[INPUT]], "input tokens", 1, BENCH_MAX_LENGTH, &n_input);
    if (status == QUIRE_OK)
        status = read_whole(r, &fields[where[OUTPUT]], "output tokens", 1, BENCH_MAX_LENGTH, &n_output);
    if (status == QUIRE_OK && where[NANOSECONDS] >= 0) {
        status = read_whole(r, &fields[where[NANOSECONDS]], "arrival_time_ns", 0, INT64_MAX, &ns);
        at = (int64_t)ns;
    } else if (status == QUIRE_OK && where[DATE] >= 0) {
        status = read_date(r, &fields[where[DATE]], &at);
    }
    const struct bench_workload_row row = {.n_input = (uint32_t)n_input, .n_output = (uint32_t)n_output};
    return status == QUIRE_OK ? add_row(r, at, &row) : status;
}

/* ---- both ---- */

static int read_lines(struct reader *r, const char *text, size_t n)
{
    bool is_json = false, has_header = false;
    int where[N_KNOWN] = {-1, -1, -1, -1};
    for (const char *at = text, *end = text + n; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((stop ? stop : end) - at);
        size_t used = len && at[len - 1] == '\r' ? len - 1 : len;
        int status = QUIRE_OK;
        r->line++;
        if (used > 0 && !is_json && !has_header && at[0] == '{')
            is_json = true;
        if (used > 0 && is_json) {
            status = read_json_line(r, at, used);
        } else if (used > 0 && !has_header) {
            status = read_header(r, at, used, where);
            has_header = true;
        } else if (used > 0) {
            status = read_csv_line(r, at, used, where);
        }
        if (status != QUIRE_OK)
            return status;
        at += len + (stop != NULL);
    }
    if (r->out->n_rows == 0)
        return quire_fail(r->err, QUIRE_INVALID, "%s: has no requests", r->name);
    r->out->has_times = is_json || where[DATE] >= 0 || where[NANOSECONDS] >= 0;
    return QUIRE_OK;
}

int bench_workload_read(const char *text, size_t n, const char *name, const struct bench_workload_form *form,
                        struct bench_workload *out, struct quire_error *err)
{
    struct reader r = {.name = name, .form = form, .out = out, .err = err};
    *out = (struct bench_workload){.n_tenants = 1};
    out->tenants = calloc(BENCH_WORKLOAD_MAX_TENANTS, sizeof *out->tenants);
    if (!out->tenants)
        return out_of_memory(&r);
    strcpy(out->tenants[0], "default");
    return read_lines(&r, text, n);
}

void bench_workload_free(struct bench_workload *workload)
{
    free(workload->rows);
    free(workload->hashes);
    free(workload->tenants);
    *workload = (struct bench_workload){0};
}

int bench_read_file(const char *path, size_t max_bytes, char **text, size_t *n, struct quire_error *err)
{
    struct stat info;
    *text = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        if (fd >= 0)
            close(fd);
        return quire_fail(err, QUIRE_NOT_FOUND, "%s: cannot be read: %s", path,
                          fd < 0 ? strerror(errno) : "not a file");
    }
    if ((uint64_t)info.st_size > max_bytes) {
        close(fd);
        return quire_fail(err, QUIRE_INVALID, "%s: is larger than %zu bytes", path, max_bytes);
    }
    size_t size = (size_t)info.st_size, got = 0;
    ssize_t more = 1;
    char *bytes = malloc(size + 1);
    while (bytes && got < size && (more = read(fd, bytes + got, size - got)) > 0)
        got += (size_t)more;
    close(fd);
    if (!bytes)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory for %zu bytes", path, size);
    if (more < 0) {
        free(bytes);
        return quire_fail(err, QUIRE_IO, "%s: cannot be read", path);
    }
    bytes[got] = 0;
    *text = bytes;
    *n = got;
    return QUIRE_OK;
}
