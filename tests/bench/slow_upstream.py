# SPDX-License-Identifier: Apache-2.0
"""An inference server that thinks for so long, and answers always the same: slow_upstream.py MILLISECONDS BODY. Prints its port."""
import asyncio
import re
import sys

BODY = sys.argv[2].encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
LENGTH = re.compile(rb"content-length: *(\d+)", re.I)


class Upstream(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.data = transport, b""

    def data_received(self, data):
        self.data += data
        head, found, body = self.data.partition(b"\r\n\r\n")
        size = LENGTH.search(head)
        if found and size and len(body) >= int(size[1]):
            self.data = body[int(size[1]):]
            LOOP.call_later(DELAY_S, self.answer)

    def answer(self):
        if not self.transport.is_closing():
            self.transport.write(ANSWER)


DELAY_S = int(sys.argv[1]) / 1000
LOOP = asyncio.new_event_loop()
server = LOOP.run_until_complete(LOOP.create_server(Upstream, "127.0.0.1", 0, backlog=1024))
print(server.sockets[0].getsockname()[1], flush=True)
LOOP.run_forever()
