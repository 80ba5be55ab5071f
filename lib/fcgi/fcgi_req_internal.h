/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FCGI_REQ_INTERNAL_H
#define WB_FCGI_REQ_INTERNAL_H

#endif
