"""Objects that the tests of subject processes start, well and badly behaved."""

import faulthandler
import os
import signal
import subprocess
import sys
import time

import torch


class Adder:
    def __init__(self, start=0):
        self.total = start

    def add(self, number):
        self.total += number
        return self.total

    def echo(self, value):
        return value

    def fill(self, tensor, value):
        tensor.fill_(value)

    def doubled(self, tensor):
        return tensor * 2

    def address(self, tensor):
        return tensor.data_ptr() % 4096

    def missing(self):
        raise FileNotFoundError(2, "no such\nblock")

    def sleep_for_ever(self, there):
        while True:
            if there is not None:
                there.fill_(1)
            time.sleep(1)

    def dribble(self):
        frame = sys._getframe()
        while "link" not in frame.f_locals:
            frame = frame.f_back
        frame.f_locals["link"].sendall(b"\xff\0\0\0")
        while True:
            frame.f_locals["link"].sendall(b"x")
            time.sleep(0.05)

    def exit_with(self, code):
        os._exit(code)

    def raise_signal(self, name):
        sys.stderr.write(f"about to {name}\n")
        faulthandler.disable()
        os.kill(os.getpid(), getattr(signal, name))

    def leave_system(self):
        sys.exit(3)

    def start_child(self):
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid

    def unsendable(self):
        return object()

    def here(self):
        return os.getcwd()

    def has_imported(self, name):
        return name in sys.modules

    def threads(self):
        return torch.get_num_threads()


class Unmakeable:
    def __init__(self):
        raise ValueError("not today")


number = 3


class Writer:
    """Writes files, and says where it runs."""

    def write(self, path, data):
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return path

    def python(self):
        return [sys.executable, os.getpid()]

    def fill(self, tensor):
        tensor.fill_(7)

    def leave(self, code):
        os._exit(code)
