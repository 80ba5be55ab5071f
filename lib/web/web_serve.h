/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_WEB_SERVE_H
#define WB_WEB_SERVE_H

#endif
