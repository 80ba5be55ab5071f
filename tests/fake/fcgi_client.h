/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FCGI_CLIENT_H
#define WB_FCGI_CLIENT_H

#endif
