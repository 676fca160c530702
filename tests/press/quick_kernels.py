"""Kernels that are forked from the process that executes a chapter.

To start a kernel and import torch, pandas and the like takes five seconds for each
chapter. The server that forks the processes of chapters imports this module, where
tests ask for it: the libraries are then in each of these processes, and in a kernel
that is forked from it. What KERNEL_FIRST names is run first in such a kernel.
"""

import asyncio
import importlib
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback

from jupyter_client.provisioning import local_provisioner

# Not of this project, and nothing that asks at its import whether it is in a kernel.
LIBRARIES = [
    *("ipykernel.ipkernel", "ipykernel.kernelapp", "IPython"),
    *("numpy", "pandas", "scipy.optimize", "scipy.stats", "torch", "foolbox"),
    *("matplotlib.axes", "matplotlib.figure", "sklearn.datasets", "sklearn.metrics"),
    # The first optimizer imports it: a second for each chapter that trains.
    *("seaborn", "torch._dynamo"),
]


class ForkedKernel:
    """What jupyter_client asks of a ``Popen``."""

    stdin = stdout = stderr = None

    def __init__(self, arguments, environment, folder):
        self.status = None
        self.pid = os.fork()
        # By parent and child, whoever is first: jupyter_client kills the whole group.
        os.setpgid(self.pid, self.pid)
        if not self.pid:
            try:
                be_kernel(arguments, environment, folder)
            except BaseException:
                traceback.print_exc()
            os._exit(1)

    def poll(self):
        """Return the exit status, None while the kernel runs."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status

    def wait(self, timeout=60.0):
        """Wait for the end of the kernel."""
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("kernel", timeout)
            time.sleep(0.01)
        return self.status

    def send_signal(self, number):
        """Send a signal, unless the kernel is gone."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        """Ask the kernel to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """End the kernel."""
        self.send_signal(signal.SIGKILL)


def be_kernel(arguments, environment, folder):
    """Turn this process into the kernel."""
    os.chdir(folder)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    # The loop of the process that was forked runs on there.
    asyncio.set_event_loop(asyncio.new_event_loop())
    os.environ.clear()
    os.environ.update(environment)
    if script := os.environ.get("KERNEL_FIRST"):
        runpy.run_path(script, run_name="kernel")
    sys.argv = ["ipykernel_launcher", *arguments]
    runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)
    os._exit(0)


def launch(command, *, env, cwd=None, **options):
    """Fork a kernel if the test asks for it, else start a new process."""
    if "QUICK_KERNELS" not in os.environ:
        return launch_kernel(command, env=env, cwd=cwd, **options)
    first = command.index("ipykernel_launcher") + 1
    return ForkedKernel(command[first:], env, cwd or ".")


launch_kernel = local_provisioner.launch_kernel
if __name__ == "quick_kernels":  # in the server, and not in a test
    local_provisioner.launch_kernel = launch
    for name in LIBRARIES:
        importlib.import_module(name)
