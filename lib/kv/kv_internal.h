/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KV_INTERNAL_H
#define WB_KV_INTERNAL_H

#endif
