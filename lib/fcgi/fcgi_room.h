/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FCGI_ROOM_H
#define WB_FCGI_ROOM_H

#endif
