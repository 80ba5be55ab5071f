/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_POLL_STATE_H
#define WB_POLL_STATE_H

#endif
