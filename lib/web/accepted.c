/* SPDX-License-Identifier: Apache-2.0 */
#include "web/accepted.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define MAGIC UINT64_C(0x3154504343414257)

enum { SIZE_MAX_BYTES = 16 << 20 };

struct head {
    uint64_t magic;
    uint64_t conf_size;
    uint64_t tokens_size;
};

int accepted_make(const struct conf *c, const struct buf *tokens, int *out, struct err *e)
{
    const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    cleanup_buf struct buf all = BUF_INIT(SIZE_MAX_BYTES);
    struct head head = { .magic = MAGIC, .tokens_size = tokens->len };
    buf_add(&all, &head, sizeof(head));
    conf_save(c, &all);
    head.conf_size = all.len - sizeof(head);
    memcpy(all.data, &head, sizeof(head));
    buf_add(&all, tokens->data, tokens->len);
    cleanup_fd int fd = memfd_create("accepted configuration", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int rc = 0;
    if (all.overflow)
        rc = err_set(e, ERR_INTERNAL, "the configuration is too long to be kept");
    else if (fd < 0 || file_write(fd, all.data, all.len) < 0 || fcntl(fd, F_ADD_SEALS, seals) != 0)
        rc = err_errno(e, ERR_INTERNAL, "keep the accepted configuration");
    explicit_bzero(all.data, all.len);
    if (rc == 0)
        *out = STEAL_FD(fd);
    return rc;
}

/* The whole file: *size bytes, which are at least a head. */
static char *read_file(int fd, size_t *size)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof(struct head) ||
        st.st_size > SIZE_MAX_BYTES)
        return NULL;
    *size = (size_t)st.st_size;
    cleanup_free char *bytes = mem_alloc(*size);
    return file_read(fd, bytes, *size) == 0 ? STEAL(bytes) : NULL;
}

int accepted_read(int fd, struct conf *c, struct buf *tokens, struct err *e)
{
    struct head head;
    size_t size = 0;
    cleanup_free char *bytes = read_file(fd, &size);
    if (bytes == NULL)
        return err_set(e, ERR_INTERNAL, "the accepted configuration cannot be read");
    memcpy(&head, bytes, sizeof(head));
    const char *conf = bytes + sizeof(head);
    size -= sizeof(head);
    int rc = 1;
    if (head.magic == MAGIC) {
        rc = head.conf_size > size || head.tokens_size != size - head.conf_size
                 ? err_set(e, ERR_INVALID, "the accepted configuration is cut short")
                 : conf_restore(c, conf, head.conf_size, e);
        if (rc == 0)
            buf_add(tokens, conf + head.conf_size, head.tokens_size);
    }
    explicit_bzero(bytes, size + sizeof(head));
    return rc;
}
