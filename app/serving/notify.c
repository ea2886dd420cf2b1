#include "app/serving/notify.h"

#include "base/log.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    if (n == 0)
        return;
    if ((path[0] != '/' && path[0] != '@') || n >= sizeof to.sun_path) {
        quire_log(QUIRE_LOG_WARN, "quire", "NOTIFY_SOCKET is not a valid address: %.200s", path);
        return;
    }
    memcpy(to.sun_path, path, n);
    if (path[0] == '@') /* an abstract address */
        to.sun_path[0] = '\0';
    socklen_t n_to = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, n_to) < 0)
        quire_log(QUIRE_LOG_WARN, "quire", "systemd could not be notified of %s: %m", state);
    if (fd >= 0)
        close(fd);
}

void notify_ready(void)
{
    notify("READY=1");
}

void notify_stopping(void)
{
    notify("STOPPING=1");
}
