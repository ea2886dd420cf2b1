/* quire ps: the servers of this user on this machine, and whether they answer. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/serving/server_list.h"
#include "base/size.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MS 2000L

static size_t discard(char *bytes, size_t one, size_t n, void *context)
{
    (void)bytes;
    (void)context;
    return one * n;
}

/* GET /health. The certificate is not checked: nothing secret is sent. */
static const char *state_of_http(const char *address)
{
    char url[400];
    long code = 0;
    CURL *easy = curl_easy_init();
    if (!easy)
        return "unknown";
    snprintf(url, sizeof url, "%s/health", address);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, ANSWER_MS);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, discard);
    if (curl_easy_perform(easy) == CURLE_OK)
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
    curl_easy_cleanup(easy);
    return code == 200 ? "ready" : code == 503 ? "not ready" : code ? "answers" : "no answer";
}

/* An engine speaks frames, so a connection must be enough. */
static const char *state_of_socket(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof to.sun_path)
        return "unknown";
    strcpy(to.sun_path, path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool connected = fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof to) == 0;
    if (fd >= 0)
        close(fd);
    return connected ? "ready" : "no answer";
}

static const char *state_of(const struct listed_server *s)
{
    if (strncmp(s->address, "unix:", 5) == 0)
        return state_of_socket(s->address + 5);
    return strncmp(s->address, "http", 4) == 0 ? state_of_http(s->address) : "runs";
}

/* Resident bytes of a process. 0: unknown. */
static uint64_t memory_of(pid_t pid)
{
    char path[64];
    unsigned long long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "re");
    if (file) {
        if (fscanf(file, "%*u %llu", &pages) != 1)
            pages = 0;
        fclose(file);
    }
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void print_table(const struct server_list *servers)
{
    size_t model = strlen("MODEL"), address = strlen("ADDRESS");
    for (size_t i = 0; i < servers->n; i++) {
        const struct listed_server *s = &servers->items[i];
        model = strlen(s->model) > model ? strlen(s->model) : model;
        address = strlen(s->address) > address ? strlen(s->address) : address;
    }
    printf("%-*s  %-*s  %-7s  %8s  %10s  %9s  %s\n", (int)model, "MODEL", (int)address, "ADDRESS", "COMMAND", "PID",
           "MEMORY", "UP", "STATE");
    for (size_t i = 0; i < servers->n; i++) {
        const struct listed_server *s = &servers->items[i];
        const long up = (long)(time(NULL) - s->since);
        char text[32];
        if (up < 3600)
            snprintf(text, sizeof text, "%ld:%02ld", up / 60, up % 60);
        else
            snprintf(text, sizeof text, "%ld h %ld min", up / 3600, up / 60 % 60);
        printf("%-*s  %-*s  %-7s  %8d  %10s  %9s  %s\n", (int)model, s->model, (int)address, s->address, s->kind,
               (int)s->pid, quire_size(memory_of(s->pid)).text, text, state_of(s));
    }
}

static json_t *servers_json(const struct server_list *servers)
{
    json_t *list = json_array();
    for (size_t i = 0; i < servers->n; i++) {
        const struct listed_server *s = &servers->items[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:s}", "model", s->model, "address",
                                              s->address, "command", s->kind, "pid", (int)s->pid, "memory_bytes",
                                              (json_int_t)memory_of(s->pid), "since", (json_int_t)s->since, "state",
                                              state_of(s)));
    }
    return list;
}

int command_ps(int argc, char **argv)
{
    bool json = false;
    struct server_list servers;
    struct quire_error err;
    const struct cli_option rows[] = {
        {.names = "json", .kind = CLI_FLAG, .target = &json, .help = "Print JSON."},
        {0},
    };
    const struct cli_command command = {
        .name = "ps",
        .usage = "quire ps [options]",
        .about = "Lists your running servers and engines on this machine, and asks each whether it is ready.",
        .examples = "examples:\n"
                    "  quire ps\n"
                    "  kill $(quire ps --json | jq '.servers[0].pid')      SIGTERM finishes running requests first",
        .options = rows,
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (server_list_read(&servers, &err) != QUIRE_OK)
        return command_fail(1, err.text);
    if (json)
        code = command_print_json(json_pack("{s:o}", "servers", servers_json(&servers)));
    else if (servers.n)
        print_table(&servers);
    else
        fprintf(stderr, "quire: no server of yours runs on this machine\n");
    server_list_free(&servers);
    return code;
}
