/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORES_H
#define WB_STORES_H

#endif
