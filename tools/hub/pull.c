#include "tools/hub/pull.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES (16ull << 20) /* size of a request: long compared with a round trip, short compared with a file */
#define MAX_HOPS 5
#define POLL_MS 100

struct file {
    const char *name;
    struct hub_blob blob;
    char *ask;      /* its address at the hub */
    char *url;      /* address of the content; NULL: not resolved yet */
    unsigned n_failures, n_hops, n_running;
    double not_before; /* quire_now_s() */
    bool known;     /* its blob is open */
    bool one_piece; /* its server does not support ranges */
    bool again;     /* was wrong once */
};

struct slot { /* a connection */
    CURL *easy;
    struct file *file; /* NULL: idle */
    bool is_piece;
    bool checked;       /* the reply's head matches the request */
    bool ignored_range; /* the whole file came instead */
    uint64_t begin, at, end;
    int status;         /* result of writing */
    struct quire_error err;
    char curl_text[CURL_ERROR_SIZE];
    struct hub_pull *pull;
};

struct hub_pull {
    struct hub_pull_options options;
    CURLM *multi;
    struct file *files;
    struct slot *slots;
    size_t n_files;
    uint32_t n_slots;
    double not_before; /* the hub is busy */
    uint64_t received_bytes;
    bool content;      /* otherwise: only resolve */
};

/* ---- opening ---- */

int hub_pull_open(const struct hub_pull_options *options, struct hub_pull **out, struct quire_error *err)
{
    const struct hub_list *list = options->list;
    struct hub_pull *p = calloc(1, sizeof *p);
    *out = p;
    if (!p)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    p->options = *options;
    p->multi = curl_multi_init();
    p->files = calloc(list->n + 1, sizeof *p->files);
    p->slots = calloc(options->n_connections, sizeof *p->slots);
    bool ok = p->multi && p->files && p->slots;
    for (size_t i = 0; ok && i < list->n; i++) {
        struct file *file = &p->files[p->n_files++];
        file->name = list->files[i];
        file->blob.fd = -1;
        ok = (file->ask = hub_file_url(options->hub, options->name->text, list->commit, file->name));
    }
    for (uint32_t i = 0; ok && i < options->n_connections; i++) {
        struct slot *slot = &p->slots[p->n_slots++];
        slot->pull = p;
        ok = (slot->easy = curl_easy_init());
    }
    if (ok)
        return QUIRE_OK;
    hub_pull_close(p);
    *out = NULL;
    return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

/* Ends the request of a slot, whatever its result. */
static void release(struct slot *slot)
{
    struct file *file = slot->file;
    if (!file)
        return;
    curl_multi_remove_handle(slot->pull->multi, slot->easy);
    if (slot->is_piece)
        hub_blob_unask(&file->blob, slot->begin, slot->end);
    file->n_running--;
    slot->file = NULL;
}

void hub_pull_close(struct hub_pull *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        release(&p->slots[i]);
        curl_easy_cleanup(p->slots[i].easy);
    }
    for (size_t i = 0; i < p->n_files; i++) {
        if (p->files[i].known)
            hub_blob_close(&p->files[i].blob);
        free(p->files[i].ask);
        free(p->files[i].url);
    }
    curl_multi_cleanup(p->multi);
    free(p->files);
    free(p->slots);
    free(p);
}

/* ---- failures ---- */

/* why is for people. OK: the file is retried later. Several parts that fail together count once. */
static int later(struct slot *slot, struct file *file, CURLcode result, const struct quire_error *why,
                 struct quire_error *err)
{
    struct hub_pull *p = slot->pull;
    double now = quire_now_s(), wait_s;
    long code = 0;
    free(file->url);
    file->url = NULL;
    file->n_hops = 0;
    if (now < file->not_before)
        return QUIRE_OK;
    if (!hub_may_retry(slot->easy, result, ++file->n_failures, &wait_s))
        return quire_fail(err, QUIRE_IO, "%.440s; the downloaded part is kept: the same command continues", why->text);
    file->not_before = now + wait_s;
    curl_easy_getinfo(slot->easy, CURLINFO_RESPONSE_CODE, &code);
    if (code == 429)
        p->not_before = file->not_before;
    hub_tell(p->options.note, p->options.context, why, wait_s);
    return QUIRE_OK;
}

static void explain(struct slot *slot, const struct file *file, CURLcode result, struct quire_error *out)
{
    struct hub_failure f = {.result = result, .what = file->name, .name = slot->pull->options.name};
    memcpy(f.curl_text, slot->curl_text, sizeof f.curl_text);
    hub_fail(slot->pull->options.hub, slot->easy, &f, out);
}

/* ---- resolving files ---- */

static const char *header(CURL *easy, const char *name)
{
    struct curl_header *h;
    return curl_easy_header(easy, name, 0, CURLH_HEADER, -1, &h) == CURLHE_OK ? h->value : NULL;
}

static bool parse_size(const char *text, uint64_t *out)
{
    char *end;
    if (!text || *text < '0' || *text > '9')
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return !*end && errno == 0;
}

static bool is_known(const struct hub_pull *p, const char *etag)
{
    for (size_t i = 0; i < p->n_files; i++)
        if (p->files[i].known && strcmp(p->files[i].blob.etag, etag) == 0)
            return true;
    return false;
}

/* Opens the blob of a file after its ETag and size are known; they never change at one commit. */
static int know(struct hub_pull *p, struct file *file, const char *etag, uint64_t size, struct quire_error *err)
{
    int status = QUIRE_OK;
    if (!file->known && is_known(p, etag)) { /* two files with the same content share a blob */
        file->blob.done = file->known = true;
        snprintf(file->blob.etag, sizeof file->blob.etag, "%s", etag);
    } else if (!file->known) {
        status = hub_blob_open(&file->blob, p->options.repo, etag, size, err);
        file->known = status == QUIRE_OK;
    } else if (strcmp(file->blob.etag, etag) != 0 || file->blob.size_bytes != size) {
        status = quire_fail(err, QUIRE_INVALID, "the file has changed on the hub");
    }
    if (status != QUIRE_OK)
        quire_error_prefix(err, "%.200s", file->name);
    return status;
}

/* A reply to HEAD: the file is here (200) or elsewhere (3xx). If a redirect does not carry the file's metadata, the
 * target is asked: a renamed model, small files, mirrors. hub_prepare() sends the token to no other host. */
static int resolved(struct slot *slot, struct file *file, long code, struct quire_error *err)
{
    struct hub_pull *p = slot->pull;
    char *next = NULL, etag[HUB_ETAG_BYTES], *url;
    const char *linked = header(slot->easy, "X-Linked-Etag"), *size_text = header(slot->easy, "X-Linked-Size");
    const char *commit = header(slot->easy, "X-Repo-Commit"), *plain = header(slot->easy, "ETag");
    uint64_t size;
    bool moved = code >= 300;
    curl_easy_getinfo(slot->easy, CURLINFO_REDIRECT_URL, &next);
    if (moved && !next)
        return quire_fail(err, QUIRE_IO, "%.200s: the hub replied with HTTP %ld and no address", file->name, code);
    if (moved && !(linked && size_text)) {
        if (++file->n_hops > MAX_HOPS)
            return quire_fail(err, QUIRE_IO, "%.200s: too many redirects", file->name);
    } else {
        if (commit && strcmp(commit, p->options.list->commit) != 0)
            return quire_fail(err, QUIRE_INVALID, "%.200s: the hub sent another commit than the requested one",
                              file->name);
        if (!(linked || plain) || !hub_etag_parse(linked ? linked : plain, etag))
            return quire_fail(err, QUIRE_INVALID, "%.200s: the hub sent no valid ETag", file->name);
        if (!parse_size(size_text ? size_text : header(slot->easy, "Content-Length"), &size))
            return quire_fail(err, QUIRE_INVALID, "%.200s: the hub did not send the file's size", file->name);
        int status = know(p, file, etag, size, err);
        if (status != QUIRE_OK)
            return status;
        file->n_hops = 0;
    }
    if (!moved)
        curl_easy_getinfo(slot->easy, CURLINFO_EFFECTIVE_URL, &next);
    if (!(url = strdup(next)))
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (file->n_hops) {
        free(file->ask);
        file->ask = url;
    } else {
        free(file->url);
        file->url = url;
    }
    return QUIRE_OK;
}

/* ---- downloading content ---- */

/* Returns whether the reply matches the request. */
static bool check_head(struct slot *slot)
{
    const struct hub_blob *blob = &slot->file->blob;
    const char *range = header(slot->easy, "Content-Range"), *length = header(slot->easy, "Content-Length");
    unsigned long long first, last, total;
    uint64_t n;
    long code = 0;
    curl_easy_getinfo(slot->easy, CURLINFO_RESPONSE_CODE, &code);
    bool whole = slot->begin == 0 && slot->end == blob->size_bytes;
    slot->ignored_range = code == 200 && !whole;
    if (slot->ignored_range)
        return false;
    if (code == 206 && range && sscanf(range, "bytes %20llu-%20llu/%20llu", &first, &last, &total) == 3 &&
        total == blob->size_bytes)
        return first == slot->begin && last == slot->end - 1;
    if (code == 200 && (!length || (parse_size(length, &n) && n == blob->size_bytes)))
        return true;
    slot->status = quire_fail(&slot->err, QUIRE_INVALID, "%.200s: another length than announced", slot->file->name);
    return false;
}

static size_t on_bytes(char *bytes, size_t one, size_t n, void *context)
{
    struct slot *slot = context;
    long code = 0;
    (void)one;
    curl_easy_getinfo(slot->easy, CURLINFO_RESPONSE_CODE, &code);
    if (code >= 300)
        return n; /* a page for people; the status is enough */
    if (!slot->checked && !check_head(slot))
        return 0;
    slot->checked = true;
    slot->pull->received_bytes += n;
    if (n > slot->end - slot->at) {
        slot->status = quire_fail(&slot->err, QUIRE_INVALID, "%.200s: more data than announced", slot->file->name);
        return 0;
    }
    slot->status = hub_blob_write(&slot->file->blob, slot->at, bytes, n, &slot->err);
    if (slot->status != QUIRE_OK)
        return 0;
    slot->at += n;
    return n;
}

static int piece_ended(struct slot *slot, struct file *file, CURLcode result, long code, struct quire_error *err)
{
    struct quire_error why;
    if (slot->status == QUIRE_IO) { /* the disk, not the network */
        if (err)
            *err = slot->err;
        return slot->status;
    }
    if (slot->ignored_range) {
        file->one_piece = true;
        return QUIRE_OK;
    }
    if (slot->at - slot->begin >= HUB_UNIT_BYTES || slot->at == slot->end)
        file->n_failures = 0;
    if (result == CURLE_OK && slot->status == QUIRE_OK && slot->at == slot->end)
        return QUIRE_OK;
    if (slot->status != QUIRE_OK)
        why = slot->err;
    else if (result == CURLE_OK && code < 300)
        quire_fail(&why, QUIRE_IO, "%.200s: less data than announced", file->name);
    else
        explain(slot, file, result, &why);
    if (slot->status != QUIRE_OK && file->again) {
        if (err)
            *err = why;
        return slot->status;
    }
    file->again |= slot->status != QUIRE_OK;
    /* The address of the content may have been valid for an hour only. An error of the hub itself is repeated by the
     * next HEAD. */
    return later(slot, file, result != CURLE_OK ? result : CURLE_PARTIAL_FILE, &why, err);
}

/* ---- the loop ---- */

static int begin(struct slot *slot, struct file *file, struct quire_error *err)
{
    struct hub_pull *p = slot->pull;
    int status = hub_prepare(p->options.hub, slot->easy, slot->is_piece ? file->url : file->ask, err);
    if (status != QUIRE_OK)
        return status;
    curl_easy_setopt(slot->easy, CURLOPT_ERRORBUFFER, slot->curl_text);
    curl_easy_setopt(slot->easy, CURLOPT_PRIVATE, slot);
    if (slot->is_piece) {
        char range[64];
        snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)slot->begin, (unsigned long long)slot->end - 1);
        if (!file->one_piece)
            curl_easy_setopt(slot->easy, CURLOPT_RANGE, range);
        /* Follows redirects of a CDN; libcurl sends the token to no other host or port. */
        curl_easy_setopt(slot->easy, CURLOPT_FOLLOWLOCATION, 1L);
        curl_easy_setopt(slot->easy, CURLOPT_MAXREDIRS, (long)MAX_HOPS);
        curl_easy_setopt(slot->easy, CURLOPT_WRITEFUNCTION, on_bytes);
        curl_easy_setopt(slot->easy, CURLOPT_WRITEDATA, slot);
    } else {
        curl_easy_setopt(slot->easy, CURLOPT_NOBODY, 1L);
    }
    slot->checked = slot->ignored_range = false;
    slot->status = QUIRE_OK;
    slot->curl_text[0] = 0;
    slot->file = file;
    file->n_running++;
    if (curl_multi_add_handle(p->multi, slot->easy) == CURLM_OK)
        return QUIRE_OK;
    release(slot);
    return quire_fail(err, QUIRE_INTERNAL, "libcurl rejects a request");
}

/* Assigns work on the file to this slot. Returns false if there is none now. */
static bool take(struct slot *slot, struct file *file, double now)
{
    const struct hub_pull *p = slot->pull;
    struct hub_blob *blob = &file->blob;
    if (now < file->not_before || now < p->not_before || blob->done)
        return false;
    slot->is_piece = file->url != NULL;
    if (!slot->is_piece)
        return file->n_running == 0 && !(p->content && file->known && blob->present_bytes == blob->size_bytes);
    if (!p->content || (file->one_piece && file->n_running > 0))
        return false;
    if (file->one_piece && blob->present_bytes > 0 && blob->present_bytes < blob->size_bytes &&
        hub_blob_restart(blob, NULL) != QUIRE_OK)
        return false;
    if (!hub_blob_ask(blob, file->one_piece ? UINT64_MAX : PIECE_BYTES, &slot->begin, &slot->end))
        return false;
    slot->at = slot->begin;
    return true;
}

static int fill_slots(struct hub_pull *p, struct quire_error *err)
{
    double now = quire_now_s();
    size_t i = 0;
    for (uint32_t s = 0; s < p->n_slots; s++) {
        struct slot *slot = &p->slots[s];
        if (slot->file)
            continue;
        while (i < p->n_files && !take(slot, &p->files[i], now))
            i++;
        if (i == p->n_files)
            break;
        int status = begin(slot, &p->files[i], err);
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}

static int on_end(struct slot *slot, CURLcode result, struct quire_error *err)
{
    struct file *file = slot->file;
    struct quire_error why;
    double wait_s;
    long code = 0;
    curl_easy_getinfo(slot->easy, CURLINFO_RESPONSE_CODE, &code);
    release(slot);
    if (slot->is_piece)
        return piece_ended(slot, file, result, code, err);
    if (result == CURLE_OK && code >= 200 && code < 400)
        return resolved(slot, file, code, err);
    explain(slot, file, result, &why);
    if (hub_may_retry(slot->easy, result, 1, &wait_s))
        return later(slot, file, result, &why, err);
    if (err)
        *err = why;
    return code == 404 ? QUIRE_NOT_FOUND : QUIRE_IO;
}

/* Hashes present units. *busy: more units can be hashed at once. */
static int check_blobs(struct hub_pull *p, bool *busy, struct quire_error *err)
{
    *busy = false;
    for (size_t i = 0; i < p->n_files; i++) {
        struct file *file = &p->files[i];
        struct hub_blob *blob = &file->blob;
        if (!file->known || blob->done)
            continue;
        uint32_t before = blob->n_hashed;
        int status = hub_blob_hash_some(blob, err);
        if (status == QUIRE_OK && hub_blob_is_whole(blob)) {
            if (file->n_running > 0) /* its last part is still running */
                continue;
            status = hub_blob_finish(blob, err);
            if (status == QUIRE_INVALID && !file->again) {
                file->again = true;
                if (p->options.note)
                    p->options.note(p->options.context, "a downloaded file was wrong and is downloaded once more");
                status = hub_blob_restart(blob, err);
            } else if (status == QUIRE_INVALID) {
                quire_error_prefix(err, "%.200s: was wrong twice and is deleted", file->name);
                hub_blob_discard(blob);
                file->known = false;
            }
        }
        if (status != QUIRE_OK)
            return status;
        *busy |= blob->n_hashed > before && !blob->done;
    }
    return QUIRE_OK;
}

static bool all_done(const struct hub_pull *p)
{
    for (size_t i = 0; i < p->n_files; i++)
        if (p->content ? !p->files[i].blob.done : !p->files[i].known)
            return false;
    return true;
}

static int run(struct hub_pull *p, struct quire_error *err)
{
    while (!all_done(p)) {
        int n_left, status = fill_slots(p, err);
        bool busy = false;
        CURLMsg *message;
        if (status != QUIRE_OK)
            return status;
        if (curl_multi_perform(p->multi, &n_left) != CURLM_OK)
            return quire_fail(err, QUIRE_INTERNAL, "libcurl failed");
        while ((message = curl_multi_info_read(p->multi, &n_left))) {
            char *slot = NULL;
            CURLcode result = message->data.result; /* the message is invalid after its handle is removed */
            if (message->msg != CURLMSG_DONE)
                continue;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &slot);
            if ((status = on_end((struct slot *)slot, result, err)) != QUIRE_OK)
                return status;
        }
        if (p->content && (status = check_blobs(p, &busy, err)) != QUIRE_OK)
            return status;
        if (p->options.progress)
            p->options.progress(p->options.context, p);
        if (!all_done(p) && curl_multi_poll(p->multi, NULL, 0, busy ? 0 : POLL_MS, NULL) != CURLM_OK)
            return quire_fail(err, QUIRE_INTERNAL, "libcurl failed while waiting");
    }
    return QUIRE_OK;
}

int hub_pull_resolve(struct hub_pull *p, struct quire_error *err)
{
    p->content = false;
    return run(p, err);
}

int hub_pull_content(struct hub_pull *p, struct quire_error *err)
{
    p->content = true;
    return run(p, err);
}

/* ---- figures ---- */

uint64_t hub_pull_total_bytes(const struct hub_pull *p)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < p->n_files; i++)
        sum += p->files[i].known ? p->files[i].blob.size_bytes : 0;
    return sum;
}

uint64_t hub_pull_present_bytes(const struct hub_pull *p)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < p->n_files; i++)
        sum += p->files[i].known ? p->files[i].blob.present_bytes : 0;
    return sum;
}

uint64_t hub_pull_received_bytes(const struct hub_pull *p)
{
    return p->received_bytes;
}

const char *hub_pull_etag(const struct hub_pull *p, size_t i)
{
    return p->files[i].blob.etag;
}

size_t hub_pull_n_hashed(const struct hub_pull *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_files; i++)
        n += p->files[i].known && p->files[i].blob.has_sha256;
    return n;
}
