# SPDX-License-Identifier: Apache-2.0
"""Double of the artifacts program as a publisher sees it (docs/openapi-artifacts.yaml): it hashes what it gets.

Orders (POST /_control): {"have": [HEX, ...]} shards that are there already, {"reject": REASON} what its release gate says,
{"verifying": N} times that it says so before it ends, {"lose": true} what came is gone once, when all has come."""
import hashlib
import re

from fake_api import Answer, Double, options, run

VERSION = re.compile(r"/api/v1/artifacts/([^/]+)/versions/([^/]+)(?:/shards/([0-9a-f]{64}))?")


def error(status, text, headers=None):
    return Answer(status, {"error": text, "request_id": "0123456789"}, headers)


class Store(Double):
    def __init__(self, token):
        super().__init__()
        self.token = token
        self.manifest, self.body = None, b""
        self.have, self.sent, self.reject, self.verifying, self.lose = set(), {}, "", 0, False

    def control(self, order):
        self.have = set(order.pop("have", self.have))
        self.reject = order.pop("reject", self.reject)
        self.verifying = order.pop("verifying", self.verifying)
        self.lose = order.pop("lose", self.lose)

    def state(self):
        return {"sent": self.sent, "manifest": self.manifest}

    def missing(self):
        wanted = {d.removeprefix("sha256:") for f in self.manifest["files"] for d in f["shards"]}
        return sorted(wanted - self.have - set(self.sent))

    def shown(self):
        if self.missing():
            return {"state": "uploading", "reason": ""}
        if self.lose:
            self.lose, self.sent = False, {}
            return {"state": "uploading", "reason": ""}
        if self.verifying > 0:
            self.verifying -= 1
            return {"state": "verifying", "reason": ""}
        return {"state": "rejected" if self.reject else "published", "reason": self.reject}

    def announce(self, call):
        manifest = call.json()
        if not isinstance(manifest, dict) or manifest.get("schema") != 1:
            return error(400, "schema: a whole number is missing")
        if self.manifest is not None and call.raw != self.body:
            return error(409, "this version has other bytes")
        self.manifest, self.body = manifest, call.raw
        missing = ["sha256:" + d for d in self.missing()]
        return Answer(202, {**self.shown(), "missing": missing})

    def take(self, call, digest):
        if digest not in self.missing():
            return Answer(200, {"shard": "sha256:" + digest})
        if hashlib.sha256(call.raw).hexdigest() != digest:
            return error(422, "the body's sha256 is another")
        self.sent[digest] = self.sent.get(digest, 0) + 1
        return Answer(201, {"shard": "sha256:" + digest})

    def handle(self, call):
        if self.token and call.headers.get("Authorization") != f"Bearer {self.token}":
            return error(401, f"unknown token {call.headers.get('Authorization')}")
        found = VERSION.fullmatch(call.path)
        if not found:
            return error(404, "there is nothing at this path")
        if found[3] and call.method == "PUT":
            return self.take(call, found[3])
        if call.method == "PUT":
            return self.announce(call)
        if self.manifest is None:
            return error(404, "no such version")
        return Answer(200, {"artifact": found[1], "version": found[2], **self.shown()})


def main():
    parser = options(__doc__)
    parser.add_argument("--token", default="")
    args = parser.parse_args()
    run(Store(args.token), args)


if __name__ == "__main__":
    main()
