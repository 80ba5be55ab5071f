/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DB_INTERNAL_H
#define WB_DB_INTERNAL_H

#endif
