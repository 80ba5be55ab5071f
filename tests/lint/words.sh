#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Spelling of documents and sources.
. "$(dirname "$0")/sources.sh"
need codespell

files '\.(c|h|def|md|sh|py|sql|conf|yaml|am|ac)$' | xargs codespell --ignore-words-list nd,modell,upto
