#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The layout of C files is clang-format's (`./dev fmt` applies it).
. "$(dirname "$0")/sources.sh"
need clang-format

{ c_files && h_files; } | xargs -P 2 -n 20 clang-format --dry-run -Werror
