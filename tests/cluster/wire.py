# SPDX-License-Identifier: Apache-2.0
"""A connection between a host and the database that can be cut: a proxy between two Unix sockets."""

import os
import selectors
import socket
import threading


class Wire:
    """Forwards bytes in both directions until it is cut; then bytes stay where they are, as behind a lost cable."""

    def __init__(self, folder, target):
        self.folder, self.target = str(folder), str(target)
        os.makedirs(self.folder, exist_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.folder + "/.s.PGSQL.5432")
        os.chmod(self.folder + "/.s.PGSQL.5432", 0o777)
        self.listener.listen(64)
        self.is_cut = False
        self.ends = False
        self.other = {}  # The other end of each socket.
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _accept(self):
        near, _ = self.listener.accept()
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(self.target + "/.s.PGSQL.5432")
        except OSError:
            near.close()
            far.close()
            return
        for one, other in ((near, far), (far, near)):
            self.other[one] = other
            self.selector.register(one, selectors.EVENT_READ)

    def _drop(self, one):
        for end in (one, self.other.get(one)):
            if end is not None and end in self.other:
                self.selector.unregister(end)
                del self.other[end]
                end.close()

    def _forward(self, one):
        try:
            data = one.recv(1 << 16)
            if data:
                self.other[one].sendall(data)
                return
        except OSError:
            pass
        self._drop(one)

    def _work(self):
        while not self.ends:
            if self.is_cut:
                threading.Event().wait(0.01)
                continue
            for key, _ in self.selector.select(0.05):
                if self.is_cut:
                    break
                if key.fileobj is self.listener:
                    self._accept()
                elif key.fileobj in self.other:
                    self._forward(key.fileobj)

    def close(self):
        self.ends = True
        self.thread.join()
        for one in list(self.other):
            self._drop(one)
        self.listener.close()
