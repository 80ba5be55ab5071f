/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/tls_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/str.h"

enum { SKIPPED = 77 };

void tls_files_make(struct tls_files *t)
{
    int status = -1;
    (void)str_copy(t->dir, sizeof t->dir, "/tmp/wb-tls-XXXXXX");
    assert_non_null(mkdtemp(t->dir));
    assert_int_equal(str_format(t->cert, sizeof t->cert, "%s/cert", t->dir), 0);
    assert_int_equal(str_format(t->key, sizeof t->key, "%s/key", t->dir), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
        (void)execlp("openssl", "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test", "-addext",
            "subjectAltName=IP:127.0.0.1", "-keyout", t->key, "-out", t->cert, (char *)NULL);
        _exit(SKIPPED);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        exit(SKIPPED);
    assert_int_equal(status, 0);
}

void tls_files_remove(const struct tls_files *t)
{
    (void)unlink(t->cert);
    (void)unlink(t->key);
    (void)rmdir(t->dir);
}
