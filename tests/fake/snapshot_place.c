/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/snapshot_place.h"

#include <dirent.h>
#include <string.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"

int place_setup(void **state)
{
    struct err e = ERR_INIT;
    struct place *p = mem_calloc(1, sizeof(*p));
    str_copy(p->dir, sizeof(p->dir), "/tmp/wb-snapshot-XXXXXX");
    if (!mkdtemp(p->dir) || shared_open(p->dir, "ops", &p->shared, &e) != 0 ||
        snapshots_open(p->shared, p->dir, "ops", &p->view, &e) != 0)
        return -1;
    *state = p;
    return 0;
}

/* Calls fn with the path of each file in the folder whose name holds part. Returns how many. */
int place_each_file(const struct place *p, const char *part, void (*fn)(const char *path))
{
    int n = 0;
    DIR *d = opendir(p->dir);
    for (const struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d)) {
        char path[PLACE_PATH_SIZE];
        if (f->d_name[0] == '.' || !strstr(f->d_name, part) ||
            str_format(path, sizeof(path), "%s/%s", p->dir, f->d_name) != 0)
            continue;
        n++;
        if (fn)
            fn(path);
    }
    if (d)
        closedir(d);
    return n;
}

void place_remove(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

int place_teardown(void **state)
{
    struct place *p = *state;
    snapshots_close(p->view);
    shared_leave(p->shared);
    place_each_file(p, "", place_remove);
    rmdir(p->dir);
    free(p);
    return 0;
}

struct snapshot_parts place_parts(const char *body)
{
    struct snapshot_parts parts = { .body = body, .body_size = strlen(body) };
    return parts;
}

int place_publish(struct snapshots *view, const char *body)
{
    struct err e = ERR_INIT;
    struct snapshot_parts parts = place_parts(body);
    struct snapshot_base base = snapshot_begin(view);
    return snapshot_publish(view, &base, &parts, &e);
}

/* What the view serves now, whatever its age. */
void place_assert_serves(struct snapshots *view, const char *body)
{
    struct snapshot *snap = NULL;
    assert_int_equal(snapshot_get(view, 0, PLACE_FOREVER, 0, &snap, NULL), 0);
    assert_int_equal(snap->head->body_size, strlen(body));
    assert_memory_equal(snap->body, body, strlen(body));
    snapshot_put(snap);
}

struct snapshots *place_view(const struct place *p)
{
    struct err e = ERR_INIT;
    struct snapshots *view = NULL;
    assert_int_equal(snapshots_open(p->shared, p->dir, "ops", &view, &e), 0);
    return view;
}

void place_expect_exit(pid_t pid, int code)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

pid_t place_fork(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        alarm(60); /* an orphan of a failed test does not stay */
    return pid;
}
