# SPDX-License-Identifier: Apache-2.0
"""Other web servers than the stack's own nginx, each with the file that we ship for it, as a process of an ordinary
user in a folder and on a port of its own."""
import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import requests

from conftest import HANG_S, ROOT, free_port, wait_until
from program import binary

MODULES = "/usr/lib/apache2/modules"


class WebServer:
    """One of lighttpd or Apache, by FastCGI on the stack's socket or by CGI. What stands in `call` and `port` is as in
    conftest's Stack."""

    def __init__(self, stack, kind):
        self.stack, self.env = stack, stack.env
        self.name, _, self.way = kind.partition("-")
        self.folder = Path(tempfile.mkdtemp(prefix="wb-web-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (self.folder / "site").mkdir()
        (self.folder / "site" / "index.html").write_text("the site's own\n")
        shutil.copy(binary(stack), self.folder)
        self._copy_configuration()
        self._let_in()
        config = self.folder / "server.conf"
        config.write_text(getattr(self, f"_{self.name}")(self._shipped()))
        self.process = self._start(config)

    def _shipped(self):
        """The file that a packager installs, with the places of this test."""
        file = ROOT / "nginx" / self.name / f"{self.way}.conf"
        text = (file if file.exists() else Path(f"{file}.in")).read_text()
        places = {"@sbindir@": str(self.folder), "@sysconfdir@/weighbridge": str(self.folder),
                  "/run/weighbridge": str(self.stack.var / "run")}
        for place, here in places.items():
            text = text.replace(place, here)
        assert "@" not in re.sub(r"#.*", "", text), "a place that the test does not know"
        copy = self.folder / "shipped.conf"
        copy.write_text(text)
        return copy

    def _copy_configuration(self):
        """What a CGI process reads: it runs as the web server's user."""
        ini = (self.stack.var / "weighbridge.ini").read_text()
        (self.folder / "weighbridge.ini").write_text(ini.replace(f"{self.stack.var}/tokens", f"{self.folder}/tokens"))
        shutil.copy(self.stack.var / "tokens", self.folder / "tokens")

    def _let_in(self):
        """Neither server may run as root here, so that who else it is must get at what is the stack's."""
        self.user = []
        if os.geteuid() != 0:
            return
        self.user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]
        for path in self.folder.rglob("*"):
            shutil.chown(path, "nobody", "nogroup")
        shutil.chown(self.folder, "nobody", "nogroup")
        self.reach_socket()
        sockets = re.search(r"host=([^&]*)", self.env["WB_PGURL"])[1].replace("%2F", "/")
        os.chmod(sockets, 0o711)
        os.chmod(self.env["WB_REDIS"].removeprefix("unix:"), 0o777)

    def reach_socket(self):
        """Again after each start of the service, which makes the socket anew."""
        if self.user:
            shutil.chown(self.stack.var / "run" / "operations.sock", group="nogroup")

    def _lighttpd(self, shipped):
        """As Debian's, in what concerns paths."""
        return f'''
server.modules = ( "mod_access", "mod_alias", "mod_setenv" )
server.http-parseopts = (
    "url-normalize-unreserved" => "enable",
    "url-normalize-required" => "enable",
    "url-ctrls-reject" => "enable",
    "url-path-2f-decode" => "enable",
    "url-path-dotseg-remove" => "enable",
)
url.access-deny = ( "~", ".inc" )
server.port = {self.port}
server.bind = "127.0.0.1"
server.document-root = "{self.folder}/site"
server.errorlog = "{self.folder}/error.log"
server.upload-dirs = ( "{self.folder}" )
index-file.names = ( "index.html" )
mimetype.assign = ( ".html" => "text/html" )
setenv.add-environment = ( "WB_CONFIG" => "{self.folder}/weighbridge.ini" )
include "{shipped}"
'''

    def _apache(self, shipped):
        """As Debian's, in what concerns paths."""
        modules = ["mpm_event", "authz_core", "dir", "mime", "alias", "env", "setenvif"]
        modules += ["proxy", "proxy_fcgi"] if self.way == "fastcgi" else ["cgid"]
        return "\n".join(f"LoadModule {m}_module {MODULES}/mod_{m}.so" for m in modules) + f'''
ServerRoot "{self.folder}"
DefaultRuntimeDir "{self.folder}"
PidFile "{self.folder}/pid"
ErrorLog "{self.folder}/error.log"
{f'ScriptSock "{self.folder}/cgid.sock"' if self.way == "cgi" else ""}
ServerName 127.0.0.1
TypesConfig /dev/null
Listen 127.0.0.1:{self.port}
<Directory />
    AllowOverride None
    Require all denied
</Directory>
<Directory "{self.folder}/site">
    Require all granted
</Directory>
<FilesMatch "^\\.ht">
    Require all denied
</FilesMatch>
<VirtualHost *:{self.port}>
    DocumentRoot "{self.folder}/site"
    SetEnv WB_CONFIG "{self.folder}/weighbridge.ini"
    Include "{shipped}"
</VirtualHost>
'''

    def _start(self, config):
        command = {"lighttpd": ["lighttpd", "-D", "-f", str(config)],
                   "apache": ["apache2", "-D", "FOREGROUND", "-f", str(config)]}[self.name]
        with open(self.folder / "out.log", "wb") as log:
            process = subprocess.Popen(
                self.user + command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})

        def listens():
            assert process.poll() is None, self.log()
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.port)) == 0
        wait_until(listens, "the web server")
        return process

    def log(self):
        files = [self.folder / "out.log", self.folder / "error.log"]
        return "\n".join(f.read_text(errors="replace") for f in files if f.exists())

    def call(self, method, path, body=None, token="admin", **kw):
        headers = kw.pop("headers", {})
        if token:
            headers = {"Authorization": "Bearer " + self.env[f"WB_{token.upper()}_TOKEN"], **headers}
        return requests.request(method, self.url + path, json=body, headers=headers, timeout=HANG_S, **kw)

    def get(self, path, **kw):
        return self.call("GET", path, **kw)

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(HANG_S)
        finally:
            self.process.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
