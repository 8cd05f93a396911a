# SPDX-License-Identifier: MIT
"""build_once.py - builds a live test's programs once in a build folder, also
if several tests need them at the same time."""

import fcntl
import hashlib
import shutil
import tempfile
from pathlib import Path


def digest_of(sources):
    """The digest of the files' names and contents."""
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0")
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()


def build_once(folder, sources, build):
    """Returns 'folder', which build(a new folder) has filled from 'sources'.

    A process holds a lock while it builds, and the folder gets its name only
    when it is complete. If build() raises, there is no folder, and the next
    call tries again."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    stamp = folder / "built-from"
    wanted = digest_of(sources)
    with open(folder.with_name(folder.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if stamp.exists() and stamp.read_text() == wanted:
            return folder
        new = Path(tempfile.mkdtemp(prefix=folder.name + ".",
                                    dir=folder.parent))
        try:
            build(new)
            (new / "built-from").write_text(wanted)
            new.chmod(0o755)
            if folder.exists():
                shutil.rmtree(folder)
            new.rename(folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return folder
