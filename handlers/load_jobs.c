/* SPDX-License-Identifier: Apache-2.0 */

typedef int stub_to_be_written;
