"""Files that are computed when read and answer when written, as the kernel's own: a FUSE server.

It speaks the protocol of /dev/fuse itself and needs no library, but the right to mount.
"""

import ctypes
import errno
import json
import os
import select
import stat
import struct
import sys
from typing import Any, NamedTuple

_HEADER = struct.Struct("<IIQQIIII")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_ROOT = 1
_DETACH = 2
_NO_REPLY = {2, 36, 42}  # FORGET, INTERRUPT, BATCH_FORGET
_LIBC = ctypes.CDLL(None, use_errno=True)


class File(NamedTuple):
    """A file: what it shows, and what a write does (raises OSError to refuse)."""

    show: Any
    store: Any = None


class VirtualFiles:
    """A folder of files (by path) and links (by path, to their targets), mounted.

    ``watch`` is called after each write with the writer's process, path, text and error number.
    """

    def __init__(self, mountpoint, files, links, watch):
        self.files, self.links, self.watch = files, links, watch
        self.folders = {"": set()}
        for path in (*files, *links):
            while path:
                parent, _, name = path.rpartition("/")
                self.folders.setdefault(parent, set()).add(name)
                path = parent
        self.paths = {_ROOT: ""}
        self.nodes = {"": _ROOT}
        self.device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0,allow_other"
        self.mountpoint = mountpoint.encode()
        options = f"{options},default_permissions".encode()
        if _LIBC.mount(b"virtual", self.mountpoint, b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), "cannot mount", mountpoint)

    def serve(self, order):
        """Answer until standard input ends; its lines are orders, in JSON, answered by a line."""
        print("ready", flush=True)
        poll = select.poll()
        poll.register(self.device, select.POLLIN)
        poll.register(sys.stdin, select.POLLIN)
        try:
            while True:
                for descriptor, _ in poll.poll():
                    if descriptor == self.device:
                        self._answer()
                    elif line := sys.stdin.readline():
                        order(json.loads(line))
                        print("done", flush=True)
                    else:
                        return
        finally:
            _LIBC.umount2(self.mountpoint, _DETACH)

    def _answer(self):
        try:
            request = os.read(self.device, 1 << 20)
        except OSError:  # interrupted before it was read
            return
        _, code, unique, node, _, _, pid, _ = _HEADER.unpack_from(request)
        if code in _NO_REPLY:
            return
        try:
            data, error = self._do(code, node, pid, request[_HEADER.size :]), 0
        except OSError as refusal:
            data, error = b"", -(refusal.errno or errno.EIO)
        try:
            os.write(self.device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)
        except FileNotFoundError:  # whoever asked was killed
            return

    def _do(self, code, node, pid, body):
        path = self.paths.get(node, "")
        match code:
            case 1:  # LOOKUP
                return self._lookup(path, body.rstrip(b"\0").decode())
            case 3 | 4:  # GETATTR, SETATTR
                return struct.pack("<QII", 0, 0, 0) + self._attributes(path)
            case 5:  # READLINK
                return self.links[path].encode()
            case 14 | 27:  # OPEN, OPENDIR; direct, since contents change by themselves
                return struct.pack("<QII", 0, 1 if code == 14 else 0, 0)
            case 15 | 28:  # READ, READDIR
                _, offset, size = struct.unpack_from("<QQI", body)
                if code == 28:
                    return self._entries(path, offset, size)
                return self.files[path].show().encode()[offset : offset + size]
            case 16:  # WRITE
                (size,) = struct.unpack_from("<I", body, 16)
                self._write(path, body[40 : 40 + size].decode(), pid)
                return struct.pack("<II", size, 0)
            case 17:  # STATFS
                return struct.pack("<QQQQQIIII24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0)
            case 18 | 25 | 29:  # RELEASE, FLUSH, RELEASEDIR
                return b""
            case 26:  # INIT
                return struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 16, 12, 65536, 1, 0, 0, 0)
        raise OSError(errno.ENOSYS, "")

    def _write(self, path, text, pid):
        error = 0
        try:
            if self.files[path].store is None:
                raise OSError(errno.EACCES, "")
            self.files[path].store(text)
        except OSError as refusal:
            error = refusal.errno or errno.EIO
            raise
        finally:
            self.watch(pid, path, text.strip(), error)

    def _lookup(self, folder, name):
        path = f"{folder}/{name}".lstrip("/")
        if name not in self.folders.get(folder, ()):
            raise FileNotFoundError(errno.ENOENT, "")
        node = self.nodes.setdefault(path, len(self.nodes) + 1)
        self.paths[node] = path
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + self._attributes(path)

    def _attributes(self, path):
        if path in self.folders:
            mode = stat.S_IFDIR | 0o755
        elif path in self.links:
            mode = stat.S_IFLNK | 0o777
        else:
            mode = stat.S_IFREG | (0o644 if self.files[path].store else 0o444)
        size = 0 if path in self.folders else len(self.links.get(path, "")) or 4096
        number = self.nodes[path]
        return _ATTRIBUTES.pack(number, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _entries(self, path, offset, size):
        data = b""
        for at, name in enumerate(sorted(self.folders[path])[offset:], offset + 1):
            full = f"{path}/{name}".lstrip("/")
            kind = 4 if full in self.folders else 10 if full in self.links else 8
            entry = struct.pack("<QQII", 1 << 40, at, len(name), kind) + name.encode()
            entry += bytes(-len(entry) % 8)
            if len(data) + len(entry) > size:
                break
            data += entry
        return data
