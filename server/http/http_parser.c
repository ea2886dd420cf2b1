#include "server/http/http_parser.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_CHUNK_LINE 256
#define MAX_TRAILER_BYTES 8192
#define MAX_EMPTY_LINES 4
#define TLS_HANDSHAKE 0x16 /* the first byte of a TLS connection */

enum state {
    IN_HEAD,
    AFTER_HEAD,
    IN_BODY,
    IN_CHUNK_SIZE,
    IN_CHUNK,
    AFTER_CHUNK,
    IN_TRAILER,
    FINISHED,
    BROKEN,
};

void http_parser_init(struct http_parser *p, size_t max_head_bytes, size_t max_body_bytes)
{
    *p = (struct http_parser){
        .max_head_bytes = max_head_bytes, .max_body_bytes = max_body_bytes, .max_length = max_body_bytes};
}

void http_parser_reset(struct http_parser *p)
{
    const uint64_t max_length = p->max_length;
    free(p->head);
    free(p->body);
    http_parser_init(p, p->max_head_bytes, p->max_body_bytes);
    p->max_length = max_length;
}

char *http_parser_take_body(struct http_parser *p, size_t *n_bytes)
{
    char *body = p->body;
    *n_bytes = p->n_body;
    p->body = NULL;
    p->n_body = p->body_capacity = 0;
    return body;
}

bool http_parser_is_idle(const struct http_parser *p)
{
    return p->state == IN_HEAD && p->n_head == 0;
}

const char *http_parser_header(const struct http_parser *p, const char *name)
{
    for (unsigned i = 0; i < p->n_headers; i++)
        if (strcasecmp(p->headers[i].name, name) == 0)
            return p->headers[i].value;
    return NULL;
}

const char *http_parser_header_next(const struct http_parser *p, const char *name, const char *after)
{
    unsigned i = 0;
    while (i < p->n_headers && p->headers[i].value != after)
        i++;
    while (++i < p->n_headers)
        if (strcasecmp(p->headers[i].name, name) == 0)
            return p->headers[i].value;
    return NULL;
}

bool http_parser_header_differs(const struct http_parser *p, const char *name)
{
    const char *first = http_parser_header(p, name);
    for (unsigned i = 0; first && i < p->n_headers; i++)
        if (strcasecmp(p->headers[i].name, name) == 0 && strcmp(p->headers[i].value, first) != 0)
            return true;
    return false;
}

static enum http_parsed bad(struct http_parser *p, int status, const char *reason)
{
    p->state = BROKEN;
    p->bad_status = status;
    p->bad_reason = reason;
    return HTTP_BAD;
}

/* ---- the head ------------------------------------------------------------------------------- */

static bool is_token_character(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c != 0 && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(const char *text)
{
    for (const char *c = text; *c; c++)
        if (!is_token_character((uint8_t)*c))
            return false;
    return *text != '\0';
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Whether it is HTTP/1.x. A minor version that is not known is handled as 1.1 (RFC 9110, 2.5). */
static bool parse_version(const char *text, bool *is_1_0)
{
    static const char major[] = "HTTP/1.";
    const size_t n = sizeof major - 1;
    *is_1_0 = strcmp(text, "HTTP/1.0") == 0;
    return strncmp(text, major, n) == 0 && text[n] >= '0' && text[n] <= '9' && text[n + 1] == '\0';
}

/* "http://host:80/path": the part before the path becomes p->authority. Returns the path, or NULL. */
static char *parse_absolute(struct http_parser *p, char *target)
{
    char *authority = strchr(target, ':') + 3;
    size_t n = strcspn(authority, "/?#");
    if (authority[n] != '/') {
        bad(p, 400, "the request's URL has no path");
        return NULL;
    }
    if (n == 0 || memchr(authority, '@', n)) {
        bad(p, 400, n == 0 ? "the request's URL has no host" : "the request's URL has a user name");
        return NULL;
    }
    /* A byte to the left, over the second slash: so there is room for its end. */
    memmove(authority - 1, authority, n);
    authority[n - 1] = '\0';
    p->authority = authority - 1;
    return authority + n;
}

/* Percent-encoded bytes are decoded: a path is compared, shown and logged as it is then. An encoded slash is no slash, so
 * "%2F" stays, and for its sake "%25"; what is no escape stands for itself. */
static enum http_parsed decode_path(struct http_parser *p, char *path)
{
    char *out = path;
    p->path = path;
    while (*path) {
        int high = path[0] == '%' ? hex_digit((uint8_t)path[1]) : -1;
        int low = high >= 0 ? hex_digit((uint8_t)path[2]) : -1;
        uint8_t c = low >= 0 ? (uint8_t)(high * 16 + low) : (uint8_t)path[0];
        bool stays = low >= 0 && (c == '/' || c == '%');
        if (c < 0x20 || c == 0x7f)
            return bad(p, 400, "the request's path has an encoded control character");
        *out++ = stays ? path[0] : (char)c;
        path += low >= 0 && !stays ? 3 : 1;
    }
    *out = '\0';
    return HTTP_MORE;
}

/* "GET /path?query HTTP/1.1", NUL-terminated, cut into its parts in place. */
static enum http_parsed parse_request_line(struct http_parser *p, char *line)
{
    char *target = strchr(line, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version)
        return bad(p, 400, "the request line is not \"METHOD PATH HTTP/1.1\"");
    *target++ = '\0';
    *version++ = '\0';
    if (!is_token(line))
        return bad(p, 400, "the request's method is not a token");
    if (!parse_version(version, &p->http_1_0))
        return bad(p, 400, "the request's version is not HTTP/1.1, HTTP/1.0 or another HTTP/1 version");
    p->method = line;

    for (const char *c = target; *c; c++)
        if ((uint8_t)*c <= 0x20 || (uint8_t)*c >= 0x7f)
            return bad(p, 400, "the request's path has bytes that are not printable ASCII");
    if (strncasecmp(target, "http://", 7) == 0 || strncasecmp(target, "https://", 8) == 0) {
        /* Absolute form, which proxies send. */
        target = parse_absolute(p, target);
        if (!target)
            return HTTP_BAD;
    }
    if (target[0] != '/' && strcmp(target, "*") != 0)
        return bad(p, 400, "the request's path does not begin with '/'");
    char *end = strpbrk(target, "?#");
    p->query = "";
    if (end && *end == '?') {
        p->query = end + 1;
        end[1 + strcspn(end + 1, "#")] = '\0';
    }
    if (end)
        *end = '\0';
    return decode_path(p, target);
}

static enum http_parsed parse_header_line(struct http_parser *p, char *line)
{
    if (*line == ' ' || *line == '\t')
        return bad(p, 400, "a header line begins with a space");
    char *colon = strchr(line, ':');
    if (!colon)
        return bad(p, 400, "a header line has no colon");
    *colon = '\0';
    if (!is_token(line))
        return bad(p, 400, "a header's name is not a token");
    char *value = colon + 1;
    value += strspn(value, " \t");
    size_t n = strlen(value);
    while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'))
        value[--n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (((uint8_t)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7f)
            return bad(p, 400, "a header's value has control characters");
    if (p->n_headers == HTTP_MAX_HEADERS)
        return bad(p, 431, "the request has more than 100 headers");
    p->headers[p->n_headers++] = (struct http_header){line, value};
    return HTTP_MORE;
}

/* Whether a comma-separated list has this word. */
static bool list_has(const char *list, const char *word)
{
    size_t n_word = strlen(word);
    while (*list) {
        list += strspn(list, " \t,");
        size_t n = strcspn(list, ",");
        size_t trimmed = n;
        while (trimmed > 0 && (list[trimmed - 1] == ' ' || list[trimmed - 1] == '\t'))
            trimmed--;
        if (trimmed == n_word && strncasecmp(list, word, n_word) == 0)
            return true;
        list += n;
    }
    return false;
}

static bool parse_length(const char *text, uint64_t *out)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 18 || text[n] != '\0')
        return false;
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value = value * 10 + (uint64_t)(text[i] - '0');
    *out = value;
    return true;
}

/* Applies the headers about the body and the connection. */
static enum http_parsed apply_headers(struct http_parser *p)
{
    unsigned n_hosts = 0;
    bool has_length = false;
    bool close = false, keep = false;
    for (unsigned i = 0; i < p->n_headers; i++) {
        const char *name = p->headers[i].name, *value = p->headers[i].value;
        if (strcasecmp(name, "Content-Length") == 0) {
            if (!parse_length(value, &p->content_length))
                return bad(p, 400, "Content-Length is not a number");
            if (has_length)
                return bad(p, 400, "there are two Content-Lengths");
            has_length = true;
        } else if (strcasecmp(name, "Transfer-Encoding") == 0) {
            if (p->chunked || strcasecmp(value, "chunked") != 0)
                return bad(p, 400, "Transfer-Encoding: only \"chunked\" is supported");
            p->chunked = true;
        } else if (strcasecmp(name, "Content-Encoding") == 0) {
            if (strcasecmp(value, "identity") != 0)
                return bad(p, 415, "Content-Encoding: compressed bodies are not supported: send the body uncompressed");
        } else if (strcasecmp(name, "Connection") == 0) {
            close |= list_has(value, "close");
            keep |= list_has(value, "keep-alive");
        } else if (strcasecmp(name, "Expect") == 0) {
            if (strcasecmp(value, "100-continue") != 0)
                return bad(p, 417, "Expect: only \"100-continue\" is supported");
            p->expect_continue = !p->http_1_0;
        } else if (strcasecmp(name, "Host") == 0) {
            n_hosts++;
            if (p->authority)
                p->headers[i].value = p->authority; /* RFC 9112, 3.2.2 */
        }
    }
    if (n_hosts > 1 || (n_hosts == 0 && !p->http_1_0))
        return bad(p, 400, "an HTTP/1.1 request needs exactly one Host header");
    if (n_hosts == 0 && p->authority) {
        if (p->n_headers == HTTP_MAX_HEADERS)
            return bad(p, 431, "the request has more than 100 headers");
        p->headers[p->n_headers++] = (struct http_header){"Host", p->authority};
    }
    if (p->chunked && (has_length || p->http_1_0))
        return bad(p, 400, "Transfer-Encoding with Content-Length or in HTTP/1.0");
    if (p->content_length > p->max_length)
        return bad(p, 413, "the request's body is larger than this server takes");
    p->has_body = p->chunked || p->content_length > 0;
    p->keep_alive = !close && (!p->http_1_0 || keep);
    return HTTP_HEAD;
}

/* All lines are there and end in CRLF. */
static enum http_parsed parse_head(struct http_parser *p)
{
    char *line = p->head;
    bool first = true;
    p->state = AFTER_HEAD;
    for (;;) {
        char *end = memchr(line, '\r', (size_t)(p->head + p->n_head - line));
        /* A lone CR inside a line is a control character: found where lines are checked. */
        while (end[1] != '\n')
            end = memchr(end + 1, '\r', (size_t)(p->head + p->n_head - end - 1));
        if (end == line)
            break;
        if (memchr(line, '\0', (size_t)(end - line)))
            return bad(p, 400, "the request's head has a NUL byte");
        *end = '\0';
        enum http_parsed got = first ? parse_request_line(p, line) : parse_header_line(p, line);
        if (got == HTTP_BAD)
            return got;
        first = false;
        line = end + 2;
    }
    return apply_headers(p);
}

static bool head_reserve(struct http_parser *p, size_t more)
{
    if (more <= p->head_capacity - p->n_head)
        return true;
    size_t capacity = p->head_capacity ? p->head_capacity : 1024;
    while (capacity - p->n_head < more)
        capacity *= 2;
    char *grown = realloc(p->head, capacity);
    if (!grown)
        return false;
    p->head = grown;
    p->head_capacity = capacity;
    return true;
}

/* Takes one line, or the beginning of one. */
static enum http_parsed feed_head(struct http_parser *p, const uint8_t *data, size_t n, size_t *used)
{
    /* Input that cannot become a request is rejected at once, because the client may be waiting for an answer, as a
     * TLS client does. */
    if (p->n_head == 0 && data[0] == TLS_HANDSHAKE)
        return bad(p, 400, "this port accepts plain HTTP, but the client started TLS: use http://");
    if (p->n_head == 0 && !is_token_character(data[0]) && data[0] != '\r' && data[0] != '\n')
        return bad(p, 400, "the request's method is not a token");
    const uint8_t *newline = memchr(data, '\n', n);
    size_t take = newline ? (size_t)(newline - data) + 1 : n;
    if (take > p->max_head_bytes - p->n_head)
        return bad(p, 431, "the request's head is larger than this server takes");
    if (!head_reserve(p, take))
        return bad(p, 413, "out of memory for the request's head");
    memcpy(p->head + p->n_head, data, take);
    p->n_head += take;
    *used += take;
    if (!newline)
        return HTTP_MORE;
    size_t n_line = p->n_head - p->line_start;
    if (n_line < 2 || p->head[p->n_head - 2] != '\r')
        return bad(p, 400, "the lines of the request's head do not end in CRLF");
    if (n_line > 2) {
        p->line_start = p->n_head;
        return HTTP_MORE;
    }
    if (p->n_head > 2)
        return parse_head(p);
    /* Empty lines before a request are to be skipped, some clients send them after a body. */
    if (++p->n_line > MAX_EMPTY_LINES)
        return bad(p, 400, "empty lines instead of a request");
    p->n_head = 0;
    return HTTP_MORE;
}

/* ---- the body ------------------------------------------------------------------------------- */

static enum http_parsed body_append(struct http_parser *p, const uint8_t *data, size_t n)
{
    if (n > p->max_body_bytes - p->n_body)
        return bad(p, 413, "the request's body is larger than this server takes");
    if (n > p->body_capacity - p->n_body) {
        /* Memory follows what arrived, not what was announced. */
        size_t capacity = p->body_capacity ? p->body_capacity : 4096;
        while (capacity - p->n_body < n)
            capacity *= 2;
        char *grown = realloc(p->body, capacity);
        if (!grown)
            return bad(p, 413, "out of memory for the request's body");
        p->body = grown;
        p->body_capacity = capacity;
    }
    if (n > 0)
        memcpy(p->body + p->n_body, data, n);
    p->n_body += n;
    return HTTP_MORE;
}

static enum http_parsed feed_body(struct http_parser *p, const uint8_t *data, size_t n, size_t *used)
{
    size_t take = n < p->left ? n : (size_t)p->left;
    if (body_append(p, data, take) == HTTP_BAD)
        return HTTP_BAD;
    *used += take;
    p->left -= take;
    if (p->left > 0)
        return HTTP_MORE;
    p->state = p->chunked ? AFTER_CHUNK : FINISHED;
    return HTTP_MORE;
}

/* One character of "1a3;extension\r\n". */
static enum http_parsed feed_chunk_size(struct http_parser *p, uint8_t c)
{
    if (p->after_cr) {
        if (c != '\n')
            return bad(p, 400, "a chunk's size line does not end in CRLF");
        p->after_cr = p->in_extension = false;
        p->n_line = 0;
        p->state = p->left > 0 ? IN_CHUNK : IN_TRAILER;
        return HTTP_MORE;
    }
    if (++p->n_line > MAX_CHUNK_LINE)
        return bad(p, 400, "a chunk's size line is too long");
    if (c == '\r' && p->n_line > 1) {
        p->after_cr = true;
        return HTTP_MORE;
    }
    int digit = hex_digit(c);
    if (!p->in_extension && digit >= 0) {
        if (p->left > UINT64_C(0xffffffffff))
            return bad(p, 413, "the request's body is larger than this server takes");
        p->left = p->left * 16 + (uint64_t)digit;
        return HTTP_MORE;
    }
    if (p->n_line > 1 && (p->in_extension || c == ';' || c == ' ') && c >= 0x20) {
        p->in_extension = true;
        return HTTP_MORE;
    }
    return bad(p, 400, "a chunk's size is not a hexadecimal number");
}

static enum http_parsed feed_after_chunk(struct http_parser *p, uint8_t c)
{
    if (c != (p->after_cr ? '\n' : '\r'))
        return bad(p, 400, "a chunk does not end in CRLF");
    if (p->after_cr)
        p->state = IN_CHUNK_SIZE;
    p->after_cr = !p->after_cr;
    return HTTP_MORE;
}

/* Trailers are read and forgotten, up to the empty line. */
static enum http_parsed feed_trailer(struct http_parser *p, uint8_t c)
{
    if (++p->n_trailer > MAX_TRAILER_BYTES)
        return bad(p, 431, "the request's trailers are larger than this server takes");
    if (p->after_cr) {
        if (c != '\n')
            return bad(p, 400, "a trailer line does not end in CRLF");
        p->after_cr = false;
        if (p->n_line == 0)
            p->state = FINISHED;
        p->n_line = 0;
    } else if (c == '\r') {
        p->after_cr = true;
    } else if (c == '\n' || c == '\0') {
        return bad(p, 400, "a trailer line does not end in CRLF");
    } else {
        p->n_line++;
    }
    return HTTP_MORE;
}

static void begin_body(struct http_parser *p)
{
    p->n_line = 0;
    if (!p->has_body) {
        p->state = FINISHED;
    } else if (p->chunked) {
        p->state = IN_CHUNK_SIZE;
    } else {
        p->state = IN_BODY;
        p->left = p->content_length;
    }
}

enum http_parsed http_parser_feed(struct http_parser *p, const uint8_t *data, size_t n, size_t *used)
{
    *used = 0;
    if (p->state == AFTER_HEAD)
        begin_body(p);
    for (;;) {
        if (p->state == BROKEN)
            return HTTP_BAD;
        if (p->state == FINISHED)
            return HTTP_DONE;
        if (*used == n)
            return HTTP_MORE;
        enum http_parsed got = HTTP_MORE;
        switch ((enum state)p->state) {
        case IN_HEAD: got = feed_head(p, data + *used, n - *used, used); break;
        case IN_BODY:
        case IN_CHUNK: got = feed_body(p, data + *used, n - *used, used); break;
        case IN_CHUNK_SIZE: got = feed_chunk_size(p, data[(*used)++]); break;
        case AFTER_CHUNK: got = feed_after_chunk(p, data[(*used)++]); break;
        case IN_TRAILER: got = feed_trailer(p, data[(*used)++]); break;
        case AFTER_HEAD:
        case FINISHED:
        case BROKEN: break;
        }
        if (got != HTTP_MORE)
            return got;
    }
}
