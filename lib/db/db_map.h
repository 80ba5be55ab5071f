/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DB_MAP_H
#define WB_DB_MAP_H

#endif
