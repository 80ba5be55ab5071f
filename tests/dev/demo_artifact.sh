# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Part of ./dev: the artifact of `demo`. The same folder is published as a version of `demo` and assigned to the node that ./dev runs, whose
# agent lands it: calls as in docs/openapi-artifacts.yaml.

demo_artifact() { # demo_artifact FOLDER
    local version id state=queued
    if ! handler_answers artifacts || ! leader agent >/dev/null; then
        echo 'no artifact: the artifacts handler or the agent does not run (./dev start artifacts agent)'
        return
    fi
    version=v$(date +%s)
    echo "publishing $1 as demo@$version (weighbridge-agent publish):"
    "$BUILD/weighbridge-agent" publish --config "$INI" --url "$DEMO_URL" --token-file "$VAR/publisher.token" --artifact demo \
        --version "$version" --shard-bytes 1048576 "$1" | sed 's/^/  /' || die 'it was not published'
    id=$(demo_admin POST /api/v1/nodes/node/assignments "{\"artifact\":\"demo\",\"version\":\"$version\"}" | jq -r .id)
    echo "assigned it to the node (POST /api/v1/nodes/node/assignments); its agent pulls, and the poll says:"
    DEMO_END=$((SECONDS + 300))
    until [[ $state == landed ]]; do
        ((SECONDS < DEMO_END)) || die "it does not land; the agent's log is $VAR/log/agent.log"
        demo_show "staging:demo@$version:node" ''
        sleep 0.5
        state=$(demo_admin GET /api/v1/nodes/node/assignments | jq -r --arg id "$id" '.assignments[] | select(.id == $id) | .state')
        [[ $state != failed && $state != cancelled ]] || die "it is $state; the agent's log is $VAR/log/agent.log"
    done
    diff -r "$1" "$VAR/node/demo/versions/$version/files" >/dev/null || die 'what landed is not what was published'
    echo "landed, verified: $VAR/node/demo/versions/$version; who has which version (GET /api/v1/artifacts/demo/distribution):"
    demo_get_distribution
}

demo_admin() { # demo_admin METHOD PATH [BODY]
    curl -sS -m 10 -X "$1" -H "Authorization: Bearer $(<"$VAR/admin.token")" -H 'Content-Type: application/json' ${3:+--data-binary "$3"} \
        "$DEMO_URL$2"
}

demo_get_distribution() {
    demo_admin GET /api/v1/artifacts/demo/distribution |
        jq -r '.versions[] | .version as $v | .nodes[] | "  \($v)  \(.node)  \(.rack)  \(.state)"'
}
