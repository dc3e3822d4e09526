"""Machines for tests: networks, mounts and host names of their own on this one, joined by a switch. Needs root.

A machine has a user with a home directory, `atoll` in the path and nothing else of this machine's settings.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import time


def why_not():
    """Why there can be no machines here; empty: there can."""
    if os.geteuid() != 0:
        return "machines of their own need root"
    if not all(shutil.which(tool) for tool in ("unshare", "nsenter", "ip", "mount")):
        return "unshare, nsenter, ip or mount is missing"
    tried = subprocess.run(["unshare", "--net", "--mount", "--uts", "ip", "link", "add", "br0", "type", "bridge"], capture_output=True, text=True)
    return "" if tried.returncode == 0 else "no network of its own can be made: " + tried.stderr.strip()


class Machine:
    """One that has been switched on. `names`: host names that it knows besides its own, by address."""

    def __init__(self, folder, name, atoll, names=None):
        self.home = pathlib.Path(folder, name)
        self.home.mkdir()
        self.name = name
        self.processes = []
        spaces = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
        first = ["sh", "-c", "while :; do sleep 1; done"]  # it waits for whatever lost its parent
        self.holder = subprocess.Popen([*spaces, *first], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.path = os.path.dirname(os.path.abspath(atoll)) + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        own = os.readlink("/proc/self/ns/uts")
        children = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        while not children.read_text().strip() or os.readlink(f"/proc/{self.holder.pid}/ns/uts") == own:
            time.sleep(0.01)
        self.first = int(children.read_text())
        hosts = self.home.with_suffix(".hosts")
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {names[address]}\n" for address in names or {}))
        self.do(f"hostname {name} && ip link set lo up && mount --bind '{hosts}' /etc/hosts && mount -t tmpfs none /srv")

    def do(self, line, **how):
        """What the machine's administrator does; it has to work."""
        return subprocess.run(self.command(line), check=True, capture_output=True, text=True, timeout=60, **how).stdout

    def command(self, line):
        enter = ["nsenter", "-t", str(self.first), "--net", "--mount", "--uts", "--pid", "env", "-i", "-C", str(self.home)]
        user = [f"HOME={self.home}", f"PATH={self.path}", "LANG=C.UTF-8", "OMP_NUM_THREADS=1", "COLUMNS=80"]
        return [*enter, *user, "sh", "-c", line]

    def run(self, line, timeout=120):
        """A line that ends: as it stands, in the user's home."""
        return subprocess.run(self.command(line), capture_output=True, text=True, errors="replace", timeout=timeout, stdin=subprocess.DEVNULL)

    def start(self, lines):
        """Lines that go on; what they say is in the log `started-N` of the home."""
        log = (self.home / f"started-{len(self.processes)}").open("w")
        process = subprocess.Popen(self.command(lines if "\n" in lines else "exec " + lines), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        process.log = log.name
        log.close()
        self.processes.append(process)
        return process

    @staticmethod
    def stop(process, how=signal.SIGTERM):
        """The user's signal to a line that goes on."""
        os.kill(int(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()), how)

    def switch_off(self):
        os.kill(self.first, signal.SIGKILL)  # and whatever else runs there
        for process in [*self.processes, self.holder]:
            process.wait()


class Network:
    """A switch with machines at it: `with Network(folder, atoll) as network: a = network.machine("a", "10.77.0.1")`."""

    def __init__(self, folder, atoll):
        self.folder, self.atoll, self.machines = folder, atoll, []

    def __enter__(self):
        self.switch = Machine(self.folder, "switch", self.atoll)
        self.machines.append(self.switch)
        self.switch.do("ip link add br0 type bridge && ip addr add 10.77.0.254/24 dev br0 && ip link set br0 up")
        return self

    def machine(self, name, address, names):
        machine = Machine(self.folder, name, self.atoll, names)
        self.machines.append(machine)
        port = f"p{len(self.machines)}"
        cable = ["ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(machine.first)]
        subprocess.run(["nsenter", "-t", str(self.switch.first), "--net", *cable], check=True)
        self.switch.do(f"ip link set {port} master br0 up")
        machine.do(f"ip addr add {address}/24 dev eth0 && ip link set eth0 up && ip route add default via 10.77.0.254")
        return machine

    def behind_router(self, name, address, how="masquerade", strangers="drop"):
        """A machine of a network of its own, 192.168.1.0/24, behind a router that has `address` and masquerades: nobody outside can dial it.

        how: nft's words; `masquerade random,fully-random` gives each connection another port. strangers: what the router does with what comes
        to itself: drop, or `reject with tcp reset`.
        """
        router = self.machine("router-of-" + name, address, {})
        machine = Machine(self.folder, name, self.atoll, {})
        self.machines.append(machine)
        cable = ["ip", "link", "add", "inside", "type", "veth", "peer", "name", "eth0", "netns", str(machine.first)]
        subprocess.run(["nsenter", "-t", str(router.first), "--net", *cable], check=True)
        router.do("ip addr add 192.168.1.1/24 dev inside && ip link set inside up && sysctl -qw net.ipv4.ip_forward=1 && nft add table ip nat"
                  " && nft 'add chain ip nat out { type nat hook postrouting priority 100 ; }' && nft add rule ip nat out oifname eth0 " + how +
                  " && nft add table ip gate && nft 'add chain ip gate in { type filter hook forward priority 0 ; policy drop ; }'"
                  " && nft add rule ip gate in iifname inside accept && nft add rule ip gate in ct state established,related accept"
                  " && nft 'add chain ip gate own { type filter hook input priority 0 ; }' && nft add rule ip gate own ct state established,related accept"
                  " && nft add rule ip gate own iifname eth0 meta l4proto tcp " + strangers)
        machine.do("ip addr add 192.168.1.2/24 dev eth0 && ip link set eth0 up && ip route add default via 192.168.1.1")
        machine.router = router
        return machine

    def __exit__(self, *_):
        for machine in reversed(self.machines):
            machine.switch_off()
