# SPDX-License-Identifier: Apache-2.0
"""Double of EC2's instance metadata service, version 2: nothing without a session token, which a PUT gives.

Orders (POST /_control): {"role": NAME or null} of the machine, {"keys": {"AccessKeyId", "SecretAccessKey", "Token"}} and
{"lasts": SECONDS} until they are over, {"code": WORD} in place of Success, {"forget": true} ends all sessions."""
import re
import time
import uuid
from datetime import datetime, timezone

from fake_api import Answer, Double, options, run

ROLES = "/latest/meta-data/iam/security-credentials/"
TTL_MAX_S = 21600
TEXT = {"Content-Type": "text/plain"}


class Metadata(Double):
    def __init__(self):
        super().__init__()
        self.sessions = {}
        self.role, self.keys, self.lasts, self.code = "wb-planner", {}, 21600, "Success"

    def control(self, order):
        for name in ("role", "keys", "lasts", "code"):
            if name in order:
                setattr(self, name, order.pop(name))
        if order.pop("forget", False):
            self.sessions = {}

    def state(self):
        return {"sessions": len(self.sessions)}

    def handle(self, call):
        if call.headers.get("X-Forwarded-For"):
            return Answer(403)  # through a proxy it is not for who asks
        if (call.method, call.path) == ("PUT", "/latest/api/token"):
            return self.begin(call)
        if call.method != "GET":
            return Answer(405)
        if self.sessions.get(call.headers.get("X-aws-ec2-metadata-token"), 0) < time.monotonic():
            return Answer(401)
        if not self.role or not call.path.startswith(ROLES):
            return Answer(404)
        if call.path == ROLES:
            return Answer(200, self.role.encode(), dict(TEXT))
        return self.show() if call.path == ROLES + self.role else Answer(404)

    def begin(self, call):
        ttl = call.headers.get("X-aws-ec2-metadata-token-ttl-seconds") or ""
        if not re.fullmatch(r"[0-9]+", ttl) or not 1 <= int(ttl) <= TTL_MAX_S or call.raw:
            return Answer(400)
        session = uuid.uuid4().hex
        self.sessions[session] = time.monotonic() + int(ttl)
        return Answer(200, session.encode(), {**TEXT, "X-aws-ec2-metadata-token-ttl-seconds": ttl})

    def show(self):
        def stamp(at):
            return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        now = time.time()
        return Answer(200, {"Code": self.code, "LastUpdated": stamp(now), "Type": "AWS-HMAC", **self.keys,
                            "Expiration": stamp(now + self.lasts)}, dict(TEXT))


if __name__ == "__main__":
    run(Metadata(), options(__doc__).parse_args())
