"""Islands in a company: its firewall lets nothing out, but for a proxy, which is Debian's squid or its microsocks.

proxy_test.py ATOLL TRAINER_MODULE: needs root for machines (machines.py), nft for the firewall, squid and microsocks.
"""

import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

import relay_test

TOOLS = ("squid", "microsocks", "openssl")
WHY_NOT = relay_test.WHY_NOT or next((f"{tool} is missing" for tool in TOOLS if not shutil.which(tool)), "")
COORDINATOR, RELAY, PROXY = relay_test.COORDINATOR, relay_test.RELAY, "10.77.0.3"
PASSWORD = "open:sesame"  # in a URL its colon is %3a
SQUID = """http_port 3128
acl tls port 443
auth_param basic program /usr/lib/squid/basic_ncsa_auth {passwords}
auth_param basic children 1
acl known proxy_auth REQUIRED
http_access deny CONNECT !tls
http_access allow known
http_access deny all
cache deny all
cache_log /dev/null
access_log none
pid_filename none
visible_hostname proxy.example.org
pinger_enable off
memory_pools off
cache_mem 8 MB
shutdown_lifetime 0 seconds
"""


RECORDER = """import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        print(self.command, self.path, flush=True)
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_GET = do_PUT = do_POST = do_HEAD = do_CONNECT = answer
http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
"""


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Company(relay_test.Relays):
    def setUp(self):
        super().setUp()
        self.proxy = self.network.machine("proxy", PROXY, {})

    def start_squid(self):
        hashed = subprocess.run(["openssl", "passwd", "-6", PASSWORD], check=True, capture_output=True, text=True).stdout
        # squid runs as a user of its own, who cannot look into this folder; /srv is this machine's alone.
        self.proxy.do(f"printf '%s' 'ali:{hashed}' >/srv/passwords && chmod 644 /srv/passwords")
        (self.proxy.home / "squid.conf").write_text(SQUID.format(passwords="/srv/passwords"))
        started = self.proxy.start("squid -N -f squid.conf")
        self.listens(3128)
        return started

    def start_microsocks(self):
        started = self.proxy.start(f"microsocks -i {PROXY} -p 1080 -u ali -P {PASSWORD}")
        self.listens(1080)
        return started

    def listens(self, port):
        self.wait_for("the proxy is there", lambda: f":{port} " in self.proxy.do("ss -Hltn"), 15)

    def start_coordinator(self, more=""):
        if not (self.coordinator.home / ".local").exists():
            self.command(f"coordinator init --bind 'tcp://*:443' --advertise tcp://{COORDINATOR}:443 --network local")
        return super().start_coordinator(more)

    def start_inside(self, name, address, proxy):
        """An island behind the firewall, whose environment names the proxy."""
        machine = self.network.behind_router(name, address)
        machine.router.do("nft flush chain ip gate in && nft add rule ip gate in ct state established,related accept"
                          f" && nft add rule ip gate in iifname inside ip daddr {PROXY} accept")
        self.begin(name, machine, f"ALL_PROXY={proxy}", " --no-port-mapping")
        return machine

    def begin(self, name, machine, variables, more):
        (machine.home / "text").write_text("islands of which one is in a company train all the same. " * 400)
        (machine.home / "token").write_text(self.command("token create -q"))
        self.islands[name] = machine
        machine.agent = machine.start(f"env {variables} ATOLL_TRAINER_MODULE={relay_test.MODULE} ATOLL_TEST_STEP_MS=10"
                                      f" atoll agent --join-file token --name {name} --data corpus=text{more}")

    def ways(self):
        return {path["way"] for island in json.loads(self.command("islands --json"))["islands"] for path in island["paths"]}

    def log_of(self, name):
        return pathlib.Path(self.islands[name].agent.log).read_text(errors="replace")

    def descriptors(self, name):
        return int(self.islands[name].do("ls /proc/$(pgrep -o -x atoll)/fd | wc -l"))

    def operator(self, machine, line, proxy=None):
        done = machine.run((f"env ALL_PROXY={proxy} " if proxy else "") + "atoll " + line)
        return done.returncode, done.stdout + done.stderr

    def test_an_island_that_squid_lets_out_to_port_443_trains_through_its_restart(self):
        squid = self.start_squid()
        url = f"http://ali:open%3asesame@{PROXY}:3128"
        self.start_coordinator()
        reef = self.network.machine("reef", "10.77.0.21", {})
        self.begin("reef", reef, "A=a", " --bind tcp://*:443")
        lagoon = self.start_inside("lagoon", "10.77.0.11", url)
        run = self.submit("squid")
        self.wait_for("rounds through squid", lambda: self.round(run) >= 3)
        self.assertEqual(self.ways() & {"proxy"}, {"proxy"})
        self.assertIn("proxy", self.command("islands"))

        # What an operator types behind the firewall.
        token = self.command("token create --role operator -q").strip()
        (lagoon.home / "operator").write_text(token)
        code, said = self.operator(lagoon, "token use --join-file operator", url)
        self.assertEqual(code, 0, said)
        code, said = self.operator(lagoon, f"status {run} --proxy {url}")
        self.assertEqual(code, 0, said)
        code, said = self.operator(lagoon, f"logs {run}", url)
        self.assertEqual(code, 0, said)
        code, said = self.operator(lagoon, f"export {run} -o model.safetensors", url)
        self.assertEqual(code, 0, said)
        self.assertTrue((lagoon.home / "model.safetensors").stat().st_size)
        code, said = self.operator(lagoon, "doctor", url)
        self.assertRegex(said, rf"the proxy is http://{PROXY}:3128 \(from ALL_PROXY\); the coordinator at tcp://{COORDINATOR}:443 is dialled through it")
        self.assertRegex(said, rf"answers within .* through the proxy http://{PROXY}:3128 \(from ALL_PROXY\) and proves its key")
        for line, wrong in (("status", url.replace("sesame", "poppy")), ("status", f"http://{PROXY}:3128")):
            code, said = self.operator(lagoon, line, wrong)
            self.assertEqual((code, said.count("\n")), (3, 1), said)
            self.assertRegex(said, r"does not take the name and password \(HTTP 407\)" if "ali" in wrong else r"asks for a name and password \(HTTP 407\)")
            self.assertNotIn("poppy", said)
        code, said = self.operator(lagoon, f"status --coordinator tcp://{COORDINATOR}:4400", url)
        self.assertEqual((code, said.count("\n")), (3, 1), said)
        self.assertRegex(said, r"refuses to connect to tcp://10.77.0.1:4400 \(HTTP 403\): many proxies allow port 443 alone.*--bind 'tcp://\*:443'")
        code, said = self.operator(lagoon, "status --proxy none", url)
        self.assertEqual(code, 3, said)  # the firewall
        code, said = self.operator(lagoon, "doctor", url.replace("sesame", "poppy"))
        self.assertRegex(said, r"coordinator at .* cannot be reached: the proxy .* does not take the name and password")

        # It is killed, and comes back.
        self.proxy.stop(squid, signal.SIGKILL)
        squid.wait()
        self.wait_for("its absence is told", lambda: f"the proxy http://{PROXY}:3128 (from ALL_PROXY) cannot be reached" in self.log_of("lagoon"), 30)
        before, held = self.round(run), self.descriptors("lagoon")
        self.start_squid()
        self.wait_for("rounds go on", lambda: self.round(run) > before + 3, 60)
        self.assertLess(self.descriptors("lagoon"), held + 60)
        self.assertNotIn("sesame", self.logs())

    def test_two_islands_that_a_socks_proxy_lets_out_meet_at_a_relay(self):
        proxy = self.start_microsocks()
        url = f"socks5h://ali:open%3asesame@{PROXY}:1080"
        self.start_relay()
        self.start_coordinator(" --relay-ticket relay.ticket")
        lagoon = self.start_inside("lagoon", "10.77.0.11", url)
        self.start_inside("shoal", "10.77.0.12", url)
        run = self.submit("socks")
        self.wait_for("rounds over the relay", lambda: self.round(run) >= 3)
        self.assertIn("lagoon and shoal exchange over relay frankfurt", self.command(f"status {run}"))
        self.assertEqual(self.ways(), {"relay frankfurt"})
        (lagoon.home / "operator").write_text(self.command("token create --role operator -q"))
        code, said = self.operator(lagoon, "token use --join-file operator", url.replace("sesame", "poppy"))
        self.assertEqual(code, 3, said)
        self.assertRegex(said, rf"the proxy socks5h://{PROXY}:1080 \(from ALL_PROXY\) does not take the name and password: ")
        self.assertNotIn("poppy", said)
        code, said = self.operator(lagoon, "token use --join-file operator", url)
        self.assertEqual(code, 0, said)
        code, said = self.operator(lagoon, f"status --coordinator tcp://{COORDINATOR}:444", url)
        self.assertRegex(said, r"the proxy socks5h://.* cannot reach tcp://10.77.0.1:444: is it running there")

        self.proxy.stop(proxy, signal.SIGKILL)
        proxy.wait()
        self.wait_for("its absence is told", lambda: f"the proxy socks5h://{PROXY}:1080 (from ALL_PROXY) cannot be reached" in self.log_of("shoal"), 30)
        before = self.round(run)
        self.start_microsocks()
        self.wait_for("rounds go on", lambda: self.round(run) > before + 3, 60)
        self.assertNotIn("sesame", re.sub(r"(?m)^--- proxy.*", "", self.logs()))

    def test_restore_coordinator_and_up_take_a_proxy_by_their_option_and_not_by_the_variable_beside_it(self):
        (self.proxy.home / "records.py").write_text(RECORDER)
        recorder = self.proxy.start("python3 records.py 3128")
        self.listens(3128)
        asked = pathlib.Path(recorder.log)
        url, elsewhere = f"http://{PROXY}:3128", "env ALL_PROXY=http://10.77.0.9:1 HTTPS_PROXY=http://10.77.0.9:1 "
        store = "AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_ENDPOINT_URL=https://10.77.0.99:9000"
        done = self.coordinator.run(f"{elsewhere} {store} timeout 20 atoll restore s3://reefs/copies -o model.safetensors --proxy {url}")
        self.assertIn("CONNECT 10.77.0.99:9000", asked.read_text(), done.stderr)
        self.assertNotEqual(done.returncode, 0)
        for line in (f"restore s3://reefs/copies -o model.safetensors --proxy https://{PROXY}:3128", f"coordinator --proxy https://{PROXY}:3128", f"up --proxy https://{PROXY}:3128"):
            done = self.coordinator.run("atoll " + line)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertIn("--proxy", done.stderr)

        self.command(f"coordinator init --bind 'tcp://*:4400' --advertise tcp://{COORDINATOR}:4400 --network local")
        settings = self.coordinator.home / ".local/state/atoll/coordinator.toml"
        settings.write_text(settings.read_text() + '\n[notify]\nurl = "https://10.77.0.99:8080/hook"\n')
        running = self.coordinator.start(f"{elsewhere} atoll coordinator --proxy {url}")
        self.wait_for("the coordinator is there", lambda: "listens on" in pathlib.Path(running.log).read_text())
        run = self.submit("told")
        self.command(f"cancel {run}")
        self.wait_for("the hook is posted through the proxy", lambda: "CONNECT 10.77.0.99:8080" in asked.read_text(), 30)
        self.coordinator.stop(running)
        running.wait()

        up = self.coordinator.start(f"atoll up --proxy {url}")
        self.wait_for("both have the option", lambda: len(re.findall(rf"atoll (?:agent|coordinator) .*--proxy {url}", self.coordinator.run("ps -eww -o args=").stdout)) >= 2, 30)
        self.coordinator.stop(up)
        up.wait()


if __name__ == "__main__":
    if WHY_NOT:
        print(f"skipped: {WHY_NOT}")
        sys.exit(4)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
