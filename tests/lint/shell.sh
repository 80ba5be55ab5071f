#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All shell scripts, by shellcheck.
. "$(dirname "$0")/sources.sh"
need shellcheck

files '(\.sh|^dev|^\.ci/run)$' | xargs shellcheck -x -P SCRIPTDIR:. -e SC2016
