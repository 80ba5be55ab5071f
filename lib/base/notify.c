/* SPDX-License-Identifier: Apache-2.0 */
#include "base/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"

/* -1: a path that systemd would not make. An abstract name begins with '@', which stands for NUL. */
static int address(const char *path, struct sockaddr_un *out, socklen_t *size)
{
    const size_t n = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || n >= sizeof(out->sun_path))
        return -1;
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(out->sun_path, path, n);
    if (path[0] == '@')
        out->sun_path[0] = '\0';
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    return 0;
}

static void tell(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a;
    socklen_t size = 0;
    if (path == NULL || *path == '\0')
        return;
    cleanup_fd int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (address(path, &a, &size) < 0)
        log_warn(LOG_MSG("NOTIFY_SOCKET is no socket's name"));
    else if (fd < 0 ||
             sendto(fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&a, size) < 0)
        log_warn(LOG_MSG("the service manager cannot be told"), LOG_I("errno", errno));
}

void notify_ready(void)
{
    tell("READY=1");
}

void notify_reloading(void)
{
    char text[64];
    (void)str_format(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
        clock_mono_ns() / (NS_PER_S / US_PER_S));
    tell(text);
}

void notify_stopping(void)
{
    tell("STOPPING=1");
}

void notify_alive(void)
{
    if (!str_empty(getenv("WATCHDOG_USEC")))
        tell("WATCHDOG=1");
}
