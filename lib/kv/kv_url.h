/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KV_URL_H
#define WB_KV_URL_H

#endif
