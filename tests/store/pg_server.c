/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/store/pg_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <libpq-fe.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"

enum { START_MS = 30000, LOOK_MS = 20, PATH_SIZE = 256 };

/* The newest installed version's programs. */
static bool program(const char *name, char out[PATH_SIZE])
{
    char pattern[PATH_SIZE];
    glob_t found = { 0 };
    (void)str_format(pattern, sizeof pattern, "/usr/lib/postgresql/*/bin/%s", name);
    bool any = glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc > 0;
    if (any)
        (void)str_copy(out, PATH_SIZE, found.gl_pathv[found.gl_pathc - 1]);
    globfree(&found);
    return any;
}

/* Postgres refuses to run as root. */
static void become_unprivileged(void)
{
    if (geteuid() != 0)
        return;
    const struct passwd *p = getpwnam("postgres");
    if (p == NULL || setgroups(0, NULL) != 0 || setgid(p->pw_gid) != 0 || setuid(p->pw_uid) != 0)
        _exit(126);
}

static pid_t spawn(const char *const argv[], const char *log)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid != 0)
        return pid;
    become_unprivileged();
    (void)prctl(PR_SET_PDEATHSIG, SIGQUIT); /* a test that dies leaves no server behind */
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    int in = open("/dev/null", O_RDONLY);
    if (out < 0 || in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(126);
    char *args[16] = { NULL };
    for (size_t i = 0; argv[i] != NULL && i < 15; i++)
        args[i] = strdup(argv[i]);
    execv(args[0], args);
    _exit(127);
}

static void paths(const struct pg_server *s, char data[PATH_SIZE], char log[PATH_SIZE])
{
    (void)str_format(data, PATH_SIZE, "%s/data", s->folder);
    (void)str_format(log, PATH_SIZE, "%s/log", s->folder);
}

bool pg_server_init(struct pg_server *s)
{
    char initdb[PATH_SIZE];
    char data[PATH_SIZE];
    char log[PATH_SIZE];
    if (!program("initdb", initdb))
        return false;
    (void)str_copy(s->folder, sizeof s->folder, "/tmp/wb-pg-XXXXXX");
    assert_non_null(mkdtemp(s->folder));
    const struct passwd *p = getpwnam("postgres");
    if (geteuid() == 0 && p != NULL)
        assert_int_equal(chown(s->folder, p->pw_uid, p->pw_gid), 0);
    (void)str_format(s->url, sizeof s->url, "host=%s user=tester dbname=postgres", s->folder);
    paths(s, data, log);
    const char *const argv[] = { initdb, "-D", data, "-U", "tester", "-E", "UTF8",
        "--locale=C.UTF-8", "-A", "trust", "--no-sync", NULL };
    int status = -1;
    assert_true(waitpid(spawn(argv, log), &status, 0) > 0);
    assert_int_equal(status, 0);
    pg_server_start(s);
    return true;
}

void pg_server_start(struct pg_server *s)
{
    char postgres[PATH_SIZE];
    char data[PATH_SIZE];
    char log[PATH_SIZE];
    assert_true(program("postgres", postgres));
    paths(s, data, log);
    const char *const argv[] = { postgres, "-D", data, "-k", s->folder, "-h", "", "-F", "-c",
        "shared_buffers=4MB", NULL };
    s->pid = spawn(argv, log);
    int64_t deadline = clock_deadline(START_MS);
    while (PQping(s->url) != PQPING_OK) {
        assert_true(clock_left_ms(deadline) > 0);
        (void)poll(NULL, 0, LOOK_MS); /* nothing to wait on: it tells nobody that it is up */
    }
}

void pg_server_stop(struct pg_server *s)
{
    if (s->pid == 0)
        return;
    kill(s->pid, SIGQUIT);
    kill(s->pid, SIGCONT);
    assert_int_equal(waitpid(s->pid, NULL, 0), s->pid);
    s->pid = 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void pg_server_fini(struct pg_server *s)
{
    pg_server_stop(s);
    (void)nftw(s->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
