/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/str.h"
#include "fcgi/fd_pass.h"
#include "fcgi/supervisor.h"

int supervisor_fd(const char *variable)
{
    int64_t fd = -1;
    const char *text = getenv(variable);
    int rc = text == NULL ? -1 : str_to_i64(text, 3, INT32_MAX, &fd);
    (void)unsetenv(variable);
    if (rc != 0 || fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0)
        return -1;
    return (int)fd;
}

int supervisor_accept(int ready_fd, int fd, struct err *e)
{
    if (fd_send(ready_fd, "a", 1, fd) == 0)
        return 0;
    return err_errno(e, ERR_INTERNAL, "cannot tell the supervisor what was read");
}
