/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SQL_TIME_H
#define WB_SQL_TIME_H

/* Times in statements: always Postgres' own, handed out as microseconds since 1970 UTC. */

/* A time that is unset (NULL, Go's zero time) is 0. Stamps beyond the year 9999 and infinity are cut, so
 * that they fit; they count as now anyway. */
#define SQL_US(time) \
    "CASE WHEN " time " BETWEEN 'epoch' AND '9999-12-31'" \
    " THEN (date_part('epoch', " time ") * 1000000)::bigint" \
    " WHEN " time " > '9999-12-31' THEN 253402214400000000 ELSE 0 END"

/* Postgres' time as the first column of an answer. */
#define SQL_CLOCK "(date_part('epoch', clock_timestamp()) * 1000000)::bigint"

#endif
