# SPDX-License-Identifier: MIT
"""identities.py - credentials for clients of a root or an agent: certificates
and tokens, right ones and every kind of wrong one. Certificates come from
`weir cert`; those that it wouldn't make (expired, self-signed) from openssl."""

import base64
import glob
import hashlib
import os
import ssl
import subprocess
from pathlib import Path

from patience import PATIENCE

WEIR = str(Path(os.environ["WEIR_BUILD"]) / "weir")

EDIT = "the-token-of-somebody-who-edits"
READ = "the-token-of-somebody-who-reads"
TAKE = "the-token-of-somebody-who-takes"


def yesterday(seconds):
    """The environment that sets a process' clock a day behind, plus so many
    seconds."""
    library, = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    return {**os.environ, "LD_PRELOAD": library,
            "FAKETIME": f"{seconds - 86400:+d}"}


def run(*command, env=None):
    done = subprocess.run([str(part) for part in command], text=True,
                          capture_output=True, timeout=PATIENCE, env=env)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stderr}")
    return done.stdout


class Who:
    """A certificate (two files, or none), a header Authorization (or none),
    and a root's result for them: 'tls' or 'credential' (refused there), or the
    set of roles."""

    def __init__(self, name, result, cert=None, header=None, newest=None):
        self.name, self.result = name, result
        self.cert, self.header, self.newest = cert, header, newest

    def context(self, ca):
        context = ssl.create_default_context(cafile=ca)
        if self.newest:
            context.maximum_version = self.newest
        if self.cert:
            context.load_cert_chain(f"{self.cert}.pem", f"{self.cert}.key")
        return context


class Certificates:
    def __init__(self, folder):
        self.folder = folder
        for name in ("good", "other"):
            run(WEIR, "cert", "ca", folder / name)
        self.server = self.good("server", "localhost", "127.0.0.1")
        self.ca = folder / "good" / "ca.pem"

    def good(self, kind, *names, into="good"):
        run(WEIR, "cert", kind, self.folder / into, *names)
        return self.folder / into / names[0]

    def by_openssl(self, path, days, ca=None, env=None):
        """A certificate for 'ops', signed by 'ca'; None: self-signed."""
        run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout",
            "-out", f"{path}.key")
        run("openssl", "req", "-new", "-key", f"{path}.key", "-subj",
            "/CN=ops", "-out", f"{path}.csr")
        signer = ["-CA", ca / "ca.pem", "-CAkey", ca / "ca.key"] if ca else \
            ["-signkey", f"{path}.key"]
        run("openssl", "x509", "-req", "-in", f"{path}.csr", *signer,
            "-days", days, "-out", f"{path}.pem", env=env)
        return path


def bearer(token):
    return f"Bearer {token}"


def everybody(certificates):
    """Every credential except those with all roles, wrong ones first."""
    folder = certificates.folder
    expired = certificates.by_openssl(folder / "expired", -1,
                                      folder / "good")
    lone = certificates.by_openssl(folder / "lone", 30)
    other = certificates.good("client", "ops", into="other")
    wrong_kind = certificates.server
    unknown = certificates.good("client", "stranger")
    taker = certificates.good("client", "taker-1")
    digest = hashlib.sha256(EDIT.encode()).hexdigest()
    basic = base64.b64encode(f"ops:{EDIT}".encode()).decode()
    credential = [
        ("nothing", None, None),
        ("a certificate of an unknown client", unknown, None),
        ("an empty header", None, ""),
        ("a scheme only", None, "Bearer"),
        ("a token cut short", None, bearer(EDIT[:-1])),
        ("a token with a letter more", None, bearer(EDIT + "s")),
        ("a token of the right length", None, bearer(EDIT[:-1] + "x")),
        ("a token in other letters", None, bearer(EDIT.upper())),
        ("the hash of a token", None, bearer(digest)),
        ("the hash as it is in the file", None, bearer("sha256:" + digest)),
        ("a token without its scheme", None, EDIT),
        ("another scheme", None, f"Basic {basic}"),
        ("a good certificate and a wrong token", taker, bearer(EDIT[:-1])),
    ]
    tls = [("expired", expired), ("of another authority", other),
           ("signed by itself", lone), ("of a server", wrong_kind)]
    old = ssl.TLSVersion.TLSv1_2
    return [
        *(Who(name, "credential", cert, header)
          for name, cert, header in credential),
        *(Who("a certificate " + name, "tls", cert) for name, cert in tls),
        *(Who(f"a certificate {name}, TLS 1.2", "tls", cert, newest=old)
          for name, cert in tls),
        # A good token doesn't make up for a bad certificate.
        Who("expired, with a good token", "tls", expired, bearer(EDIT)),
        Who("the reader's token", {"read"}, header=bearer(READ)),
        Who("the taker's token", {"take"}, header=bearer(TAKE)),
        Who("the taker's certificate", {"take"}, taker),
        Who("the editor's token", {"read", "edit"},
            header=bearer(EDIT)),
    ]
