/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <string.h>

#include "tests/fake/libpq_fails.h"

static int left[LIBPQ__COUNT]; /* 0: it does not fail; n: at the n-th call */

void libpq_fails(enum libpq_call call, int first)
{
    left[call] = first + 1;
}

bool libpq_failed(void)
{
    bool all = true;
    for (int i = 0; i < LIBPQ__COUNT; i++)
        all = all && left[i] == 0;
    memset(left, 0, sizeof left);
    return all;
}

static bool fails(enum libpq_call call)
{
    return left[call] > 0 && --left[call] == 0;
}

/* The real function of that name. ISO C has no cast from a pointer to an object. */
#define REAL(fn) \
    __typeof__(fn) *real = NULL; \
    void *found_ = dlsym(RTLD_NEXT, #fn); \
    memcpy(&real, &found_, sizeof real)

PostgresPollingStatusType PQconnectPoll(PGconn *c)
{
    REAL(PQconnectPoll);
    return fails(LIBPQ_CONNECT_POLL) ? PGRES_POLLING_FAILED : real(c);
}

int PQconsumeInput(PGconn *c)
{
    REAL(PQconsumeInput);
    return fails(LIBPQ_CONSUME_INPUT) ? 0 : real(c);
}

int PQenterPipelineMode(PGconn *c)
{
    REAL(PQenterPipelineMode);
    return fails(LIBPQ_ENTER_PIPELINE) ? 0 : real(c);
}

int PQexitPipelineMode(PGconn *c)
{
    REAL(PQexitPipelineMode);
    return fails(LIBPQ_EXIT_PIPELINE) ? 0 : real(c);
}

int PQpipelineSync(PGconn *c)
{
    REAL(PQpipelineSync);
    return fails(LIBPQ_PIPELINE_SYNC) ? 0 : real(c);
}

int PQflush(PGconn *c)
{
    REAL(PQflush);
    return fails(LIBPQ_FLUSH) ? -1 : real(c);
}

PGresult *PQgetResult(PGconn *c)
{
    REAL(PQgetResult);
    return fails(LIBPQ_GET_RESULT) ? NULL : real(c);
}

char *PQresultErrorField(const PGresult *res, int field)
{
    REAL(PQresultErrorField);
    return fails(LIBPQ_ERROR_FIELD) ? NULL : real(res, field);
}

int PQsetnonblocking(PGconn *c, int on)
{
    REAL(PQsetnonblocking);
    return fails(LIBPQ_SET_NONBLOCKING) ? -1 : real(c, on);
}

ConnStatusType PQstatus(const PGconn *c)
{
    REAL(PQstatus);
    return fails(LIBPQ_STATUS) ? CONNECTION_BAD : real(c);
}

int PQsendPrepare(PGconn *c, const char *name, const char *sql, int n, const Oid *types)
{
    REAL(PQsendPrepare);
    return fails(LIBPQ_SEND_PREPARE) ? 0 : real(c, name, sql, n, types);
}

int PQsendQuery(PGconn *c, const char *sql)
{
    REAL(PQsendQuery);
    return fails(LIBPQ_SEND) ? 0 : real(c, sql);
}

int PQsendQueryParams(PGconn *c, const char *sql, int n, const Oid *types, const char *const *value,
    const int *length, const int *format, int result)
{
    REAL(PQsendQueryParams);
    return fails(LIBPQ_SEND) ? 0 : real(c, sql, n, types, value, length, format, result);
}

int PQsendQueryPrepared(PGconn *c, const char *name, int n, const char *const *value,
    const int *length, const int *format, int result)
{
    REAL(PQsendQueryPrepared);
    return fails(LIBPQ_SEND) ? 0 : real(c, name, n, value, length, format, result);
}
