/* SPDX-License-Identifier: Apache-2.0 */
#include "web/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

enum { READ_SIZE = 4096, HASH_SIZE = DIGEST_HEX_SIZE - 1 };

struct entry {
    char hash[DIGEST_HEX_SIZE];
    unsigned role;
    size_t line;
    char subject[AUTH_SUBJECT_SIZE];
};

struct auth {
    bool open;
    bool anonymous;
    unsigned remote_role; /* ROLE_NONE: the web server's users do not count */
    char *remote_admins;
    struct entry *entry; /* sorted by hash */
    size_t n;
};

static const struct {
    const char *name;
    unsigned role;
} ROLES[] = {
    { "admin", ROLE_ADMIN },
    { "viewer", ROLE_VIEWER },
    { "submitter", ROLE_SUBMITTER },
    { "worker", ROLE_WORKER },
    { "node", ROLE_NODE },
    { "publisher", ROLE_PUBLISHER },
};

void auth_free(struct auth *a)
{
    if (a == NULL)
        return;
    free(a->remote_admins);
    free(a->entry);
    free(a);
}

static void auth_free_p(struct auth **a)
{
    auth_free(*a);
}
#define cleanup_auth __attribute__((cleanup(auth_free_p)))

static unsigned role_of(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof(ROLES) / sizeof(ROLES[0]); i++) {
        if (strlen(ROLES[i].name) == size && memcmp(ROLES[i].name, name, size) == 0)
            return ROLES[i].role;
    }
    return ROLE_NONE;
}

static const char *role_name(unsigned role)
{
    for (size_t i = 0; i < sizeof(ROLES) / sizeof(ROLES[0]); i++) {
        if (ROLES[i].role == role)
            return ROLES[i].name;
    }
    return "nobody";
}

static int take_hash(const char *text, size_t size, char out[DIGEST_HEX_SIZE])
{
    if (size != HASH_SIZE || strspn(text, "0123456789abcdefABCDEF") < HASH_SIZE)
        return -1;
    for (size_t i = 0; i < HASH_SIZE; i++)
        out[i] = text[i] >= 'A' && text[i] <= 'F' ? (char)(text[i] - 'A' + 'a') : text[i];
    out[HASH_SIZE] = '\0';
    return 0;
}

/* `hex role subject`; line is terminated. The texts never repeat the line: a token put there by
 * mistake must not get into a log. */
static int parse_line(const char *line, struct entry *out, struct err *e)
{
    static const char BLANK[] = " \t";
    const size_t hash = strcspn(line, BLANK);
    if (take_hash(line, hash, out->hash) < 0)
        return err_set(e, ERR_INVALID, "must begin with 64 hex digits (sha256 of the token)");
    const char *role = line + hash + strspn(line + hash, BLANK);
    const size_t role_size = strcspn(role, BLANK);
    out->role = role_of(role, role_size);
    if (out->role == ROLE_NONE)
        return err_set(
            e, ERR_INVALID, "unknown role (admin, viewer, submitter, worker, node or publisher)");
    const char *subject = role + role_size + strspn(role + role_size, BLANK);
    if (*subject == '\0')
        return err_set(e, ERR_INVALID, "the subject is missing");
    if (subject[strcspn(subject, " \t\r\v\f")] != '\0')
        return err_set(e, ERR_INVALID, "more than three words");
    if (!str_utf8_valid(subject, strlen(subject)) ||
        str_copy(out->subject, sizeof(out->subject), subject) < 0)
        return err_set(
            e, ERR_INVALID, "the subject must be UTF-8 of at most %d bytes", AUTH_SUBJECT_SIZE - 1);
    return 0;
}

static int read_file(const char *path, struct buf *out, struct err *e)
{
    struct stat st;
    cleanup_fd int fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* a pipe would wait */
    if (fd < 0)
        return err_errno(e, errno == ENOENT ? ERR_FORBIDDEN : ERR_INVALID, "token file %s", path);
    if (fstat(fd, &st) < 0)
        return err_errno(e, ERR_INVALID, "token file %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "token file %s: not a regular file", path);
    if ((st.st_mode & S_IROTH) != 0)
        log_warn(LOG_MSG("everybody may read the token file"), LOG_S("path", path));
    for (;;) {
        char *at = buf_room(out, READ_SIZE);
        if (at == NULL)
            return err_set(e, ERR_INVALID, "token file %s: larger than 1 MiB", path);
        ssize_t n = read(fd, at, READ_SIZE);
        if (n < 0)
            return err_errno(e, ERR_INVALID, "token file %s", path);
        if (n == 0)
            return 0;
        buf_grew(out, (size_t)n);
    }
}

static int by_hash(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->hash, ((const struct entry *)b)->hash);
}

static int refuse_duplicates(struct auth *a, struct err *e)
{
    if (a->n > 1)
        qsort(a->entry, a->n, sizeof(a->entry[0]), by_hash);
    for (size_t i = 1; i < a->n; i++) {
        if (by_hash(&a->entry[i - 1], &a->entry[i]) == 0)
            return err_set(e, ERR_INVALID, "lines %zu and %zu hold the same token",
                a->entry[i - 1].line, a->entry[i].line);
    }
    return 0;
}

static int parse_lines(struct auth *a, char *text, struct err *e)
{
    size_t room = 0;
    size_t number = 0;
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n")) {
        number++;
        if (line[strspn(line, " \t")] == '\0' || line[0] == '#')
            continue;
        if (a->n == room) {
            room = room == 0 ? 16 : room * 2;
            a->entry = mem_resize(a->entry, room, sizeof(a->entry[0]));
        }
        a->entry[a->n].line = number;
        if (parse_line(line, &a->entry[a->n], e) < 0)
            return err_wrap(e, "line %zu", number);
        a->n++;
    }
    return refuse_duplicates(a, e);
}

int auth_read_tokens(const struct conf *conf, struct buf *out, struct err *e)
{
    if (strcmp(conf->auth_mode, "tokens") != 0)
        return 0;
    if (str_empty(conf->auth_token_file))
        return err_set(e, ERR_FORBIDDEN,
            "there is no [auth] token_file: nobody could call ([auth] mode=open lets everybody in)");
    return read_file(conf->auth_token_file, out, e);
}

static int take_tokens(struct auth *a, const char *path, const struct buf *tokens, struct err *e)
{
    cleanup_free char *text = mem_dup(tokens->data == NULL ? "" : tokens->data, tokens->len);
    if (memchr(text, '\0', tokens->len) != NULL)
        return err_set(e, ERR_INVALID, "token file %s: holds a NUL byte", path);
    if (parse_lines(a, text, e) < 0)
        return err_wrap(e, "token file %s", path);
    return 0;
}

static int load_modes(struct auth *a, const struct conf *conf, struct err *e)
{
    a->open = strcmp(conf->auth_mode, "open") == 0;
    if (!a->open && strcmp(conf->auth_mode, "tokens") != 0)
        return err_set(e, ERR_INVALID, "[auth] mode: must be tokens or open");
    a->anonymous = strcmp(conf->auth_anonymous, "viewer") == 0;
    if (!a->anonymous && strcmp(conf->auth_anonymous, "none") != 0)
        return err_set(e, ERR_INVALID, "[auth] anonymous: must be none or viewer");
    if (str_empty(conf->auth_remote_user_role))
        return 0;
    a->remote_role = role_of(conf->auth_remote_user_role, strlen(conf->auth_remote_user_role));
    if (a->remote_role == ROLE_NONE)
        return err_set(e, ERR_INVALID, "[auth] remote_user_role: must be a role");
    a->remote_admins = mem_strdup(conf->auth_remote_admins);
    return 0;
}

int auth_make(const struct conf *conf, const struct buf *tokens, struct auth **out, struct err *e)
{
    cleanup_auth struct auth *a = mem_calloc(1, sizeof(*a));
    if (load_modes(a, conf, e) < 0)
        return -1;
    if (!a->open && take_tokens(a, conf->auth_token_file, tokens, e) < 0)
        return -1;
    *out = STEAL(a);
    return 0;
}

int auth_load(const struct conf *conf, struct auth **out, struct err *e)
{
    cleanup_buf struct buf tokens = BUF_INIT(AUTH_TOKENS_MAX);
    if (auth_read_tokens(conf, &tokens, e) < 0)
        return -1;
    return auth_make(conf, &tokens, out, e);
}

/* The token after "Bearer", or NULL for another scheme. */
static const char *bearer(const char *authorization)
{
    static const char SCHEME[] = "bearer";
    const size_t n = sizeof(SCHEME) - 1;
    if (strncasecmp(authorization, SCHEME, n) != 0 || authorization[n] != ' ')
        return NULL;
    return authorization + n + strspn(authorization + n, " ");
}

/* Looks at all entries, so that the time tells nothing about them. */
static int check_token(
    const struct auth *a, const char *token, struct auth_caller *out, struct err *e)
{
    char hash[DIGEST_HEX_SIZE];
    const struct entry *found = NULL;
    digest_hex(token, strlen(token), hash);
    for (size_t i = 0; i < a->n; i++) {
        if (digest_equal(hash, a->entry[i].hash, HASH_SIZE))
            found = &a->entry[i];
    }
    if (found == NULL)
        return err_set(e, ERR_UNAUTHENTICATED, "unknown token");
    out->role = found->role;
    (void)str_copy(out->subject, sizeof(out->subject), found->subject);
    return 0;
}

static bool in_words(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = words; *at != '\0';) {
        at += strspn(at, " ");
        size_t size = strcspn(at, " ");
        if (size == n && size > 0 && memcmp(at, word, n) == 0)
            return true;
        at += size;
    }
    return false;
}

static int check_remote(
    const struct auth *a, const char *user, struct auth_caller *out, struct err *e)
{
    struct auth_caller caller = { .role = a->remote_role, .subject = "" };
    if (str_copy(caller.subject, sizeof(caller.subject), user) < 0)
        return err_set(e, ERR_UNAUTHENTICATED, "the user's name is too long");
    if (in_words(a->remote_admins, user))
        caller.role = ROLE_ADMIN;
    *out = caller;
    return 0;
}

static void set_caller(struct auth_caller *out, unsigned role, const char *subject)
{
    out->role = role;
    (void)str_copy(out->subject, sizeof(out->subject), subject);
}

int auth_check(const struct auth *a, const char *authorization, const char *remote_user,
    struct auth_caller *out, struct err *e)
{
    if (a->open) {
        set_caller(out, ROLE_ADMIN, "open");
        return 0;
    }
    const bool remote = a->remote_role != ROLE_NONE && !str_empty(remote_user);
    const char *token = str_empty(authorization) ? NULL : bearer(authorization);
    if (token != NULL)
        return check_token(a, token, out, e);
    if (remote) /* any other scheme was the web server's to check */
        return check_remote(a, remote_user, out, e);
    if (!str_empty(authorization))
        return err_set(e, ERR_UNAUTHENTICATED, "only bearer tokens are taken");
    set_caller(out, ROLE_NONE, "");
    return 0;
}

bool auth_is_open(const struct auth *a, const struct web_route *route)
{
    return a->anonymous && (route->flags & WEB_ANONYMOUS) != 0;
}

int auth_allows(
    const struct auth *a, const struct auth_caller *c, const struct web_route *route, struct err *e)
{
    if ((route->flags & WEB_OPEN) != 0 || auth_is_open(a, route) || (c->role & route->roles) != 0)
        return 0;
    if (c->role != ROLE_NONE)
        return err_set(e, ERR_FORBIDDEN, "the role %s may not do this", role_name(c->role));
    return err_set(e, ERR_UNAUTHENTICATED, "a bearer token is needed");
}
